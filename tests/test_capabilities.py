"""docs/capabilities.md: each capability has a chapter, checks in it, and on each of its lanes a fault that they must detect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import nbformat
import pytest

from xpulab import files
from xpulab.faults import CATALOGUE
from xpulab.records.planned import planned_checks

PAGE = files.ROOT / "docs" / "capabilities.md"


@dataclass(frozen=True)
class Row:
    """A line of the first table. chapters: the first two characters of the notebooks' names."""

    shows: str
    chapters: frozenset[str]
    lanes: frozenset[str]


def words(cell):
    return frozenset(part.strip() for part in cell.split(",") if part.strip())


@cache
def rows():
    """By capability its row."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and re.fullmatch(r"[a-z0-9-]*[a-z][a-z0-9-]*", cells[0]) and cells[0] != "capability":
            found[cells[0]] = Row(cells[1], words(cells[2]), words(cells[3]))
    return found


@cache
def checks_of_chapters():
    """By capability, by chapter, or files.RELEASE for those that judge a release, the checks that its notebook plans."""
    found = {}
    for path in (*sorted(files.NOTEBOOKS.glob("*.ipynb")), *files.release_notebooks()):
        cells, room = nbformat.read(path, as_version=4).cells, path.parent.name
        for check in planned_checks((cell.source for cell in cells if cell.cell_type == "code"), path.stem):
            place = files.RELEASE if room == files.RELEASE else path.stem[:2]
            found.setdefault(check.name.split(".")[0], {}).setdefault(place, set()).add(check.name)
    return found


def test_every_capability_that_a_notebook_names_has_a_row_and_no_row_is_of_another():
    named = set()
    for path in (*files.NOTEBOOKS.glob("*.ipynb"), *files.release_notebooks()):
        named |= set(nbformat.read(path, as_version=4).metadata["xpulab"]["capabilities"])
    assert named == rows().keys()


@pytest.mark.parametrize("capability", rows())
def test_it_has_checks_in_the_chapters_that_its_row_names_and_in_no_other(capability):
    assert rows()[capability].chapters == checks_of_chapters()[capability].keys()


@pytest.mark.parametrize("capability", rows())
def test_on_each_of_its_lanes_a_fault_must_be_detected_by_one_of_its_checks(capability):
    tried = {
        lane for fault in CATALOGUE for check in fault.detected_by if check.split(".")[0] == capability for lane in fault.lanes
    }
    assert rows()[capability].lanes and rows()[capability].lanes <= tried
