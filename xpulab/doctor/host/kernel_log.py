"""What the kernel said in the last minutes, by the patterns of data/remedies.yaml whose id begins with "kernel-"."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from xpulab.doctor.finding import Finding
from xpulab.doctor.host.finding import fine, unknown
from xpulab.doctor.remedies import Remedy, remedies
from xpulab.messages import N_

MINUTES = 15
RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
"""Priority, number, microseconds since the start, flags; message. Source: Documentation/ABI/testing/dev-kmsg of Linux."""
BAD = ("kernel-memory-killed", "kernel-card-error", "kernel-hardware-error", "kernel-pci-error", "kernel-file-system")
"""Rows that make a host wrong; the others are warnings."""
_RECORDS, _LONGEST = 100_000, 8192


def kernel_log(root: Path, minutes: float = MINUTES) -> list[Finding]:
    """A finding for each known kind of message, with how often and the last one; one that is ok when there is none."""
    try:
        records = _records(root / "dev/kmsg")
        now = float((root / "proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return [
            unknown(
                "kernel-log", N_("/dev/kmsg cannot be read: it is for root, or for all with sysctl kernel.dmesg_restrict=0")
            )
        ]
    recent = [text for seconds, text in records if seconds >= now - 60 * minutes]
    last: dict[str, str] = {}
    count: Counter[str] = Counter()
    for text in recent:
        for row in _rows():
            if re.search(row.pattern or "", text):
                count[row.id] += 1
                last[row.id] = text
    if not count:
        return [fine("kernel-log", N_(f"no known error in {len(recent)} messages of the last {minutes:g} minutes"))]
    return [_finding(row, count[row.id], last[row.id], minutes) for row in _rows() if row.id in count]


def _finding(row: Remedy, count: int, text: str, minutes: float) -> Finding:
    seen = N_(f"{count} times in the last {minutes:g} minutes, the last time: {text[:160]}")
    return Finding(row.id, "wrong" if row.id in BAD else "warn", seen, row.remedy, row.cause, row.id)


def _rows() -> list[Remedy]:
    return [row for row in remedies() if row.id.startswith("kernel-")]


def _records(path: Path) -> list[tuple[float, str]]:
    """Seconds since the start and text of each record. The device gives one with each read, an error for what it dropped."""
    texts: list[bytes] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(_RECORDS):
            try:
                text = os.read(descriptor, _LONGEST)
            except BlockingIOError:
                break
            except BrokenPipeError:  # older records were overwritten meanwhile
                continue
            if not text:
                break
            texts.append(text)
    finally:
        os.close(descriptor)
    lines = b"".join(texts).decode(errors="replace").splitlines()
    matches = (RECORD.fullmatch(line) for line in lines)
    return [(int(match[1]) / 1e6, match[2]) for match in matches if match]
