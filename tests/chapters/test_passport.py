"""The passport: every proof belongs to a listed or past defect, and its answers are compared with the list."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from xpulab.chapters.environment import passport
from xpulab.chapters.environment.passport import ABSENT, PRESENT, Entry
from xpulab.chapters.environment.passport_proofs import DEFECTS, PAST, CannotTry, Defect
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


def test_no_defect_has_two_proofs():
    names = [defect.name for defect in (*DEFECTS, *(past.defect for past in PAST))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("past", PAST, ids=lambda past: past.defect.name)
def test_a_past_defect_is_not_of_the_pinned_release(past):
    assert not SpecifierSet(past.versions).contains("3.3.1") and past.symptom and past.source


def test_what_the_list_says_passes_and_the_opposite_fails():
    entries = [
        Entry("here and listed", PRESENT, PRESENT, "here"),
        Entry("absent and not listed", ABSENT, ABSENT, "here"),
        Entry("here, not listed", PRESENT, ABSENT, "here"),
        Entry("listed, absent", ABSENT, PRESENT, "here"),
        Entry("an error", "its proof raised ValueError: x", PRESENT, "here"),
    ]
    assert list(outcomes(entries).values()) == ["passed", "passed", "failed", "failed", "failed"]


def test_a_card_that_lacks_a_listed_defect_is_not_red():
    assert outcomes([Entry("listed, absent", ABSENT, PRESENT, "here")], "xpu") == {"listed, absent": "skipped"}


def test_a_card_that_has_another_defect_is_red():
    assert outcomes([Entry("here, not listed", PRESENT, ABSENT, "here")], "xpu") == {"here, not listed": "failed"}


def test_what_was_not_tried_is_skipped_with_its_reason():
    (row,) = compared([Entry("elsewhere", None, PRESENT, "proved by lora.merge of 03_lora")])
    assert (row.outcome, row.reason) == ("skipped", "proved by lora.merge of 03_lora")


def test_all_listed_defects_are_in_the_passport(monkeypatch):
    monkeypatch.setattr(passport, "_answers", lambda defects, device: {})
    names = [entry.name for entry in passport.passport(CPU, "quick")]
    assert names == [*(issue.id for issue in known_issues.load()), *(past.defect.name for past in PAST)]


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
