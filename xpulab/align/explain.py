"""What differs between the environments of two logs, the likeliest explanation first: data/alignment.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from xpulab import files

EXPLAINS, RELATED, UNKNOWN, HARMLESS = "likely", "possible", "unknown", "unlikely"
"""How well a difference fits the place where two logs part: our data say that it acts there, that it acts elsewhere,
nothing, or that it changes no number."""

FRAMEWORKS_OWN = ("flags.", "model.", "machine.threads")
"""The groups whose names differ between frameworks: that one log lacks such a name says little."""


@dataclass(frozen=True)
class Difference:
    """A value of the environment that differs. name: as "optimizer.epsilon". a, b: the values, None where one log has none.

    rank: EXPLAINS, RELATED, UNKNOWN or HARMLESS. says, source: what data/alignment.yaml knows about it, or empty.
    """

    name: str
    a: Any
    b: Any
    rank: str
    says: str
    source: str


@dataclass(frozen=True)
class Cause:
    """A row of data/alignment.yaml. pattern: of names of the environment. places: where in a step it acts first."""

    id: str
    pattern: str
    places: tuple[str, ...]
    says: str
    source: str


def differences(a: Mapping[str, Any], b: Mapping[str, Any], place: str | None) -> list[Difference]:
    """All values that differ, the likeliest first. place: where the logs part, as xpulab.align.compare names it."""
    places = () if place is None else tuple(place.split(" or "))
    found = []
    for name in dict.fromkeys([*a, *b]):
        ours, theirs = a.get(name), b.get(name)
        if ours != theirs:
            cause = _cause(name)
            rank = _rank(cause, places)
            if rank == EXPLAINS and None in (ours, theirs) and name.startswith(FRAMEWORKS_OWN):
                rank = RELATED
            found.append(Difference(name, ours, theirs, rank, *_known(cause)))
    return sorted(found, key=_order)


def advice(place: str) -> str:
    """What to look at when nothing in the environments explains where two logs part."""
    return " ".join(_data()["advice"][part] for part in place.split(" or "))


@cache
def causes() -> tuple[Cause, ...]:
    """All rows, in the order of the file: likelier ones first."""
    return tuple(Cause(**{**row, "places": tuple(row["places"])}) for row in _data()["causes"])


@cache
def _data() -> Any:
    return files.load_yaml(files.data("alignment.yaml"), files.data("schema", "alignment.schema.json"))


def _cause(name: str) -> Cause | None:
    return next((cause for cause in causes() if re.fullmatch(cause.pattern, name)), None)


def _rank(cause: Cause | None, places: tuple[str, ...]) -> str:
    if cause is None:
        return UNKNOWN
    if not cause.places:
        return HARMLESS
    return EXPLAINS if set(cause.places) & set(places) else RELATED


def _order(difference: Difference) -> tuple[int, int]:
    """By rank, then as in the file of causes."""
    cause = _cause(difference.name)
    rank = (EXPLAINS, RELATED, UNKNOWN, HARMLESS).index(difference.rank)
    return rank, causes().index(cause) if cause else 0


def _known(cause: Cause | None) -> tuple[str, str]:
    return ("", "") if cause is None else (cause.says, cause.source)
