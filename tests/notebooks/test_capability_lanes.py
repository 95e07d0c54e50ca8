"""docs/capabilities.md: checks compare values on the lanes that it names, and are skipped for the reasons that it gives."""

from __future__ import annotations

import re

import pytest

from xpulab import files
from xpulab.harness.chapter import read_chapter
from xpulab.harness.plan import with_own_environment

pytestmark = pytest.mark.notebooks

LONG_SECONDS = 1200
"""For all notebooks on two busy cores, where everything takes several times as long."""

TEXT = (files.ROOT / "docs" / "capabilities.md").read_text(encoding="utf-8")


def cells_of_rows(columns):
    """The rows of the page's table with this many columns, without its heading."""
    split = ([cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| "))
    return [cells for cells in split if len(cells) == columns and set(cells[0]) != {"-"}][1:]


def lanes(device):
    """The capabilities that the first table says compare values on this device, in a run that names no chapter."""
    books = (read_chapter(files.NOTEBOOKS / f"{name}.ipynb").notebook for name in with_own_environment())
    elsewhere = {each for book in books for each in book.metadata["xpulab"]["capabilities"]}
    return {cells[0] for cells in cells_of_rows(4) if device in cells[3].split(", ")} - elsewhere


def reasons(device):
    """By check why the second table says that it is skipped on this device."""
    rows = [cells for cells in cells_of_rows(5) if device in cells[1].split(", ")]
    return {check: cells[0] for cells in rows for check in re.findall(r"`([^`]+)`", cells[2])}


@pytest.mark.timeout(LONG_SECONDS)
@pytest.mark.parametrize("device", ["cpu", "sim"])
class TestLanes:
    def test_they_are_those_on_which_a_check_compared_and_rejected_its_control(self, suite, device):
        compared = {name for name, check in suite(device).checks.items() if check["outcome"] in ("passed", "known")}
        assert {name.split(".")[0] for name in compared} == lanes(device)
        assert {suite(device).checks[name]["control"] for name in compared} == {"rejected"}

    def test_each_check_that_is_skipped_has_a_reason_on_the_page(self, suite, device):
        skipped = {name for name, check in suite(device).checks.items() if check["outcome"] == "skipped"}
        assert {name for name in skipped if not name.endswith(".baseline")} == reasons(device).keys()


def test_each_proof_of_a_reason_exists():
    proofs = [proof for cells in cells_of_rows(5) for proof in re.findall(r"`(tests/[^`]+)`", cells[4])]
    assert proofs
    for path, _, name in (proof.partition("::") for proof in proofs):
        assert f"def {name}(" in (files.ROOT / path).read_text(encoding="utf-8"), name
