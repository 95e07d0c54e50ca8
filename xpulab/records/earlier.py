"""What a kernel is given of the kernels before it in the same run: their records, and what was left out in them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from xpulab.records.left_out import LeftOut
from xpulab.records.record import Record, record_in

VARIABLE = "XPULAB_RESUMED"
"""The environment variable with the file that holds the JSON of an Earlier."""


@dataclass(frozen=True)
class Earlier:
    """What the kernels before have left.

    records: of their checks, in the order in which they were made; several may be of one name. left_out: what did not run.
    """

    records: tuple[Record, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)

    def to_json(self) -> str:
        return json.dumps({"records": [record.to_metadata() for record in self.records], "left_out": asdict(self.left_out)})

    @staticmethod
    def from_json(text: str) -> Earlier:
        stored = json.loads(text)
        records = tuple(filter(None, map(record_in, stored["records"])))
        return Earlier(records, LeftOut.from_json(json.dumps(stored["left_out"])))
