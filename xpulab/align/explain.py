"""What differs between the environments of two logs, the likeliest explanation first: data/alignment.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from xpulab import files

EXPLAINS, RELATED, UNKNOWN, HARMLESS = RANKS = ("likely", "possible", "unknown", "unlikely")
"""How well a difference fits the place where two logs part: our data say that it acts there, that it acts elsewhere,
nothing, or that it changes no number."""


@dataclass(frozen=True)
class Difference:
    """A value of the environment that differs. name: as "optimizer.epsilon". a, b: the values, None where one log has none.

    rank: one of RANKS. says, source: what data/alignment.yaml knows about it, or empty.
    """

    name: str
    a: Any
    b: Any
    rank: str
    says: str = ""
    source: str = ""


def differences(a: Mapping[str, Any], b: Mapping[str, Any], place: str | None) -> list[Difference]:
    """All values that differ, the likeliest first: by rank, then in the order of the file. place: where the logs part."""
    ordered: list[tuple[int, int, Difference]] = []
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            causes = enumerate(_data()["causes"])
            row, cause = next((entry for entry in causes if re.fullmatch(entry[1]["pattern"], name)), (0, None))
            rank = _rank(cause, (place or "").split(" or "))
            if rank == EXPLAINS and None in (a.get(name), b.get(name)) and name.startswith(("flags.", "model.", "machine.")):
                rank = RELATED  # names that only one framework has
            text = {} if cause is None else {"says": cause["says"], "source": cause["source"]}
            ordered.append((RANKS.index(rank), row, Difference(name, a.get(name), b.get(name), rank, **text)))
    return [difference for *_, difference in sorted(ordered, key=lambda entry: entry[:2])]


def _rank(cause: Any, parts: list[str]) -> str:
    if cause is None:
        return UNKNOWN
    if not cause["places"]:
        return HARMLESS
    return EXPLAINS if set(cause["places"]) & set(parts) else RELATED


def advice(place: str) -> str:
    """What to look at when nothing in the environments explains where two logs part."""
    return " ".join(_data()["advice"][part] for part in place.split(" or "))


def look_at(pattern: str) -> str:
    """What to look at when the difference of two logs has this pattern."""
    return str(_data()["patterns"][pattern])


@cache
def _data() -> Any:
    return files.load_yaml(files.data("alignment.yaml"), files.data("schema", "alignment.schema.json"))
