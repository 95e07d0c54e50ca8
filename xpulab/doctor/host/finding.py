"""A finding about the host, whose cause and remedy are those of a row of data/remedies.yaml."""

from __future__ import annotations

from typing import Literal

from xpulab.doctor.finding import Finding
from xpulab.doctor.remedies import by_id


def found(id: str, verdict: Literal["warn", "wrong"], seen: str) -> Finding:
    """A finding that is not ok; the row of the remedies has the same id with "host-" before it."""
    row = by_id(f"host-{id}")
    return Finding(id, verdict, seen, row.remedy, row.cause, row.id)


def fine(id: str, seen: str) -> Finding:
    """A finding that is ok."""
    return Finding(id, "ok", seen)


def unknown(id: str, seen: str) -> Finding:
    """What could not be read: no verdict, and no alarm."""
    return Finding(id, "unknown", seen)
