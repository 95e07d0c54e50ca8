"""The error of a user's own training, of Docker, of a launcher or of a collective library: what is known of it."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from xpulab import files
from xpulab.doctor.remedies import match_at, remedy_on

LOG_BYTES = 2 << 20
"""How much of a log is read, from its end."""
_CHUNK = 1 << 20
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b.*|.*\b(error|ERROR|fatal|FATAL|failed)\b.*")


@dataclass(frozen=True)
class KnownError:
    """A line of a log that a row of data/remedies.yaml matches.

    id: of the row. line: its number, from 1. text: the line, without colours.
    cause, remedy, page: of the row, with the commands for the device.
    """

    id: str
    line: int
    text: str
    cause: str
    remedy: str
    page: str


@dataclass(frozen=True)
class ReadLog:
    """What is known of a log.

    name: as it was given. errors: in the order of their lines, each row once. last: the last line that looks like an error.
    """

    name: str
    errors: tuple[KnownError, ...]
    last: str

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)


def read_log(name: str, device: str) -> ReadLog:
    """Match the last LOG_BYTES of a file, or of standard input for "-", in UTF-8 or UTF-16.

    device: for the commands of the remedies. Raises InputError when the file cannot be read.
    """
    if name == "-":
        skipped, content = _end_of(sys.stdin.buffer)
    else:
        with files.opened(Path(name)) as file:
            skipped, content = _end_of(file)
    is_wide = b"\0" in content[:4]
    text = content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    text = _COLOURS.sub("", text)
    lines, errors = text.split("\n"), []
    for row, end in match_at(text):
        number = text.count("\n", 0, end)
        remedy = remedy_on(row, device)
        errors.append(KnownError(row.id, skipped + number + 1, lines[number].strip(), row.cause, remedy, row.page))
    last = next((line.strip() for line in reversed(lines) if _ERROR_LINE.fullmatch(line.strip())), "")
    return ReadLog("standard input" if name == "-" else name, tuple(sorted(errors, key=lambda error: error.line)), last)


def _end_of(stream: BinaryIO) -> tuple[int, bytes]:
    """How many lines come before the last LOG_BYTES of a stream, and these."""
    skipped, end = 0, b""
    while chunk := stream.read(_CHUNK):
        end += chunk
        skipped += end[:-LOG_BYTES].count(b"\n")
        end = end[-LOG_BYTES:]
    return skipped, end
