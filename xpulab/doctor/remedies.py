"""Known symptoms, what causes them, and what mends them: data/remedies.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xpulab import files
from xpulab.doctor.yaml_rows import YamlRow, read_rows
from xpulab.errors import InputError


@dataclass(frozen=True)
class Remedy:
    """One row of data/remedies.yaml.

    id: unique, in words joined by hyphens
    cause: why it happens
    remedy: a command or a sentence
    source: where cause and remedy were read or measured
    measured: it was reproduced on a machine of ours, not only read
    pattern: a regular expression searched in an error message or a log; None when only a finding of the
        doctor refers to the row
    example: a message that the pattern matches; None together with pattern
    """

    id: str
    cause: str
    remedy: str
    source: str
    measured: bool
    pattern: str | None = None
    example: str | None = None


def match(text: str) -> list[Remedy]:
    """The remedies whose pattern is found in an error message or a log, in the order of the file."""
    return [row for row in remedies() if row.pattern and re.search(row.pattern, text)]


def by_id(id: str) -> Remedy:
    """The remedy of that id. Raises KeyError: an id that is not in the file is a mistake in this program."""
    return {row.id: row for row in remedies()}[id]


@cache
def remedies() -> tuple[Remedy, ...]:
    """All rows of data/remedies.yaml."""
    return read_remedies(files.data("remedies.yaml"))


def read_remedies(path: Path) -> tuple[Remedy, ...]:
    """The rows of a file. Raises InputError with file and line for whatever is wrong with it."""
    required = {"id": str, "cause": str, "remedy": str, "source": str, "measured": bool}
    rows = read_rows(path, required, optional={"pattern": str, "example": str})
    seen: set[object] = set()
    for row in rows:
        if row.values["id"] in seen:
            raise InputError(f"{row.place}: id {row.values['id']!r} for the second time")
        seen.add(row.values["id"])
        _check_pattern(row)
    return tuple(Remedy(**row.values) for row in rows)


def _check_pattern(row: YamlRow) -> None:
    if ("pattern" in row.values) != ("example" in row.values):
        raise InputError(f"{row.place}: pattern and example belong together, one of them is missing")
    try:
        re.compile(row.values.get("pattern", ""))
    except re.error as error:
        raise InputError(f"{row.place}: pattern is not a regular expression: {error}") from error
