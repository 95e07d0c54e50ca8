"""The passport: every proof belongs to a listed or past defect, and its answers are compared with the list."""

from __future__ import annotations

from xpulab.chapters.environment import passport
from xpulab.chapters.environment.passport import ABSENT, PRESENT, Entry
from xpulab.chapters.environment.passport_proofs import DEFECTS, CannotTry, Defect
from xpulab.chapters.shared.device import Device
from xpulab.checks.table import Table
from xpulab.records import known_issues

CPU = Device("cpu", 1, "cpu")


ONE = Entry("one", PRESENT, PRESENT, "here")


def compared(entries, device="cpu"):
    """The rows of the table; a table in which nothing was compared has none, so ONE is there too."""
    rows = Table("passport.defects")
    passport.compare(rows, [*entries, ONE], device)
    return rows.record("", 0.0).rows[:-1]


def outcomes(entries, device="cpu"):
    """By case the outcome of its row."""
    return {row.case: row.outcome for row in compared(entries, device)}


def test_every_proof_is_of_a_listed_defect():
    assert {defect.name for defect in DEFECTS} <= {issue.id for issue in known_issues.load()}


def test_a_card_that_lacks_a_listed_defect_is_not_red():
    assert outcomes([Entry("listed, absent", ABSENT, PRESENT, "here")], "xpu") == {"listed, absent": "skipped"}


def test_a_card_that_has_another_defect_is_red():
    assert outcomes([Entry("here, not listed", PRESENT, ABSENT, "here")], "xpu") == {"here, not listed": "failed"}


def test_a_proof_that_cannot_run_gives_a_reason_and_one_that_raises_an_answer(monkeypatch):
    def no_kernel():
        raise CannotTry("the device has no kernel for it")

    def fails():
        raise ValueError("something else")

    proofs = (Defect("cross-entropy-mean", no_kernel), Defect("safetensors-complex128", fails))
    monkeypatch.setattr(passport, "DEFECTS", proofs)
    entries = {entry.name: entry for entry in passport.passport(CPU, "quick")}
    assert entries["cross-entropy-mean"].proof == "not tried: the device has no kernel for it"
    assert entries["safetensors-complex128"].found == "its proof raised ValueError: something else"
