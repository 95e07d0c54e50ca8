"""The error of a user's own training, of Docker, of a launcher or of a collective library: what is known of it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from xpulab import files
from xpulab.doctor.remedies import Remedy, match_at

LOG_BYTES = 2 << 20
"""How much of a log is read, from its end."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b.*|.*\b(error|ERROR|fatal|FATAL|failed)\b.*")


@dataclass(frozen=True)
class ReadLog:
    """What is known of a log.

    name: as it was given. errors: the line, its number from 1, and the row that it matches, in the order of the lines.
    last: the last line that looks like an error, "" without one.
    """

    name: str
    errors: tuple[tuple[int, str, Remedy], ...]
    last: str


def read_log(name: str) -> ReadLog:
    """Match the end of a file, or of standard input for "-", in UTF-8 or UTF-16. Raises InputError when it cannot be read."""
    if name == "-":
        name, (skipped, content) = "standard input", _end_of(sys.stdin.buffer)
    else:
        with files.opened(Path(name)) as file:
            skipped, content = _end_of(file)
    text = content.decode("utf-16" if b"\0" in content[:4] else "utf-8-sig", errors="replace")
    text = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.strip() for line in text.split("\n")]
    places = sorted((text.count("\n", 0, end), row.id, row) for row, end in match_at(text))
    last = next(filter(_ERROR_LINE.fullmatch, reversed(lines)), "")
    return ReadLog(name, tuple((skipped + place + 1, lines[place], row) for place, _, row in places), last)


def _end_of(stream: BinaryIO) -> tuple[int, bytes]:
    """How many lines come before the last LOG_BYTES of a stream, and these."""
    skipped, end = 0, b""
    while chunk := stream.read(LOG_BYTES):
        end += chunk
        skipped += end[:-LOG_BYTES].count(b"\n")
        end = end[-LOG_BYTES:]
    return skipped, end
