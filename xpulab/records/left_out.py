"""What verdict() cannot see by itself: the checks that the harness did not run, and the cells that raised before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

VARIABLE = "XPULAB_LEFT_OUT"
"""The environment variable with the file in which the harness keeps the JSON of a LeftOut, once a cell has raised."""


@dataclass(frozen=True)
class LeftOut:
    """What a raised cell has cost.

    missing: by the name of each check that cannot run any more, or of which only some cells have, the reason.
    raised: what happened in which cell, as "cell 5 of section merge raised".
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    raised: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> LeftOut:
        stored = json.loads(text)
        return LeftOut(stored["missing"], tuple(stored["raised"]))
