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

FRAMEWORKS_OWN = ("flags.", "model.", "machine.threads")
"""The groups whose names differ between frameworks: that one log lacks such a name says little."""


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
    causes = _data()["causes"]
    ordered: list[tuple[int, int, Difference]] = []
    for name in dict.fromkeys([*a, *b]):
        values = a.get(name), b.get(name)
        if values[0] == values[1]:
            continue
        row = next((row for row, cause in enumerate(causes) if re.fullmatch(cause["pattern"], name)), None)
        if row is None:
            difference = Difference(name, *values, UNKNOWN)
        else:
            rank = RELATED if causes[row]["places"] else HARMLESS
            if set(causes[row]["places"]) & set((place or "").split(" or ")):
                rank = RELATED if None in values and name.startswith(FRAMEWORKS_OWN) else EXPLAINS
            difference = Difference(name, *values, rank, causes[row]["says"], causes[row]["source"])
        ordered.append((RANKS.index(difference.rank), row or 0, difference))
    return [difference for *_, difference in sorted(ordered, key=lambda entry: entry[:2])]


def advice(place: str) -> str:
    """What to look at when nothing in the environments explains where two logs part."""
    return " ".join(_data()["advice"][part] for part in place.split(" or "))


@cache
def _data() -> Any:
    return files.load_yaml(files.data("alignment.yaml"), files.data("schema", "alignment.schema.json"))
