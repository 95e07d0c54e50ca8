"""The digest of all that a check measured: equal in two runs that measured the same to the last bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from xpulab.records.record import Record, Row

BYTES = 8
"""Of a digest; two different values have the same one with a probability of 2^-64."""

_RIGHT = ("passed", "fixed")
_LOSS = "loss"


def digest_of_check(record: Record) -> str | None:
    """16 hexadecimal digits; None for a check that compared nothing that must repeat.

    Of a check against baselines it covers the losses, since rates and memory do not repeat; of others what is right, since
    what is wrong because of a known issue may be what was in memory before.
    """
    parts = list(_measured(record) if record.measurements else _right(record))
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=BYTES).hexdigest() if parts else None


def _measured(record: Record) -> Iterator[tuple[str, object]]:
    for measurement in record.measurements:
        if measurement.kind == _LOSS:
            yield measurement.case, measurement.values


def _right(record: Record) -> Iterator[tuple[str, object]]:
    for each in record.rows or (record,):
        if each.outcome in _RIGHT:
            yield each.case if isinstance(each, Row) else "", each.digest or _stable(each.measured)


def _stable(measured: float | str | None) -> float | str | None:
    """Of an exception, which has no digest, only the type: the message may name a temporary folder."""
    return measured.partition(":")[0] if isinstance(measured, str) else measured
