"""Known symptoms, their causes and their fixes: data/remedies.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from xpulab import files
from xpulab.doctor.versions import framework_row

INSTALL = "{install}"
"""In a remedy: the command that installs the wheel for the device."""


@dataclass(frozen=True)
class Remedy:
    """One row of data/remedies.yaml.

    id: unique name, lower case, joined by hyphens
    cause: why it happens
    remedy: a command or a sentence; "{install}" stands for the command that installs the wheel for the device
    source: where cause and remedy were read or measured
    measured: whether it was reproduced on one of our machines
    pattern: regular expression that is searched in an error message or a log; None when only a finding of the
        doctor refers to the row
    example: a message that the pattern matches; None when there is no pattern
    no_verdict: whether what went wrong is around a run, and says nothing of what it judges
    page: the page, and its section, that says more
    """

    id: str
    cause: str
    remedy: str
    source: str
    measured: bool
    pattern: str | None = None
    example: str | None = None
    no_verdict: bool = False
    page: str = "docs/trouble.md"


def match(text: str) -> list[Remedy]:
    """The remedies whose pattern occurs in an error message or a log, in the order of the file."""
    return [row for row, _ in match_at(text)]


def match_at(text: str) -> list[tuple[Remedy, int]]:
    """The same, each with the place in the text of the last character that its pattern matches first."""
    found = ((row, re.search(row.pattern, text)) for row in remedies() if row.pattern)
    return [(row, place.end() - 1) for row, place in found if place]


def by_id(id: str) -> Remedy:
    """The remedy of that id. Raises KeyError for an unknown id, which is a programming error."""
    return {row.id: row for row in remedies()}[id]


def remedy_on(row: Remedy, device: str) -> str:
    """The remedy of a row with the commands for device ("xpu", "gpu", "cpu" or "sim")."""
    return row.remedy.replace(INSTALL, framework_row(device).remedy)


@cache
def remedies() -> tuple[Remedy, ...]:
    """All rows of data/remedies.yaml. Raises InputError with file and line when it does not fit its schema."""
    return tuple(
        Remedy(**row) for row in files.load_yaml(files.data("remedies.yaml"), files.data("schema", "remedies.schema.json"))
    )
