"""Known symptoms, what causes them, and what mends them: data/remedies.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xpulab import files
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
    """The rows of a file that is written like data/remedies.yaml.

    Raises InputError with file and line when it does not fit data/schema/remedies.schema.json, when an id occurs twice,
    and when a pattern is not a regular expression.
    """
    rows = tuple(Remedy(**entry) for entry in files.load_yaml(path, files.data("schema", "remedies.schema.json")))
    for number, row in enumerate(rows):
        if row.id in [earlier.id for earlier in rows[:number]]:
            raise InputError(f"{path} line {files.line_in_yaml(path, number, 'id')}: id {row.id!r} occurs twice")
        try:
            re.compile(row.pattern or "")
        except re.error as error:
            line = files.line_in_yaml(path, number, "pattern")
            raise InputError(f"{path} line {line}: the pattern is not a regular expression: {error}") from error
    return rows
