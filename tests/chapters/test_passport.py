"""The passport: a proof belongs to a listed or past defect, and its answer is compared with the list."""

from __future__ import annotations

import pytest

from xpulab.chapters.environment import passport
from xpulab.chapters.environment.passport import ABSENT, PRESENT, Defect, Entry
from xpulab.chapters.shared.device import Device
from xpulab.checks.table import Table
from xpulab.records import known_issues


def test_every_proof_is_of_a_listed_or_a_past_defect():
    assert {each.name for each in passport.PROOFS if not each.versions} <= {issue.id for issue in known_issues.load()}


@pytest.mark.parametrize(("found", "listed", "outcome"), [(ABSENT, PRESENT, "skipped"), (PRESENT, ABSENT, "failed")])
def test_a_card_may_lack_a_listed_defect_but_not_have_another(found, listed, outcome):
    rows = Table("passport.defects")  # one in which nothing was compared has no rows
    passport.compare(rows, [Entry("tried", found, listed), Entry("other", PRESENT, PRESENT)], "xpu")
    assert rows.record("", 0.0).rows[0].outcome == outcome


def test_a_proof_that_raises_gives_its_error_as_the_answer(monkeypatch):
    def fails():
        raise ValueError("something else")

    monkeypatch.setattr(passport, "PROOFS", (Defect("cross-entropy-mean", fails),))
    (entry,) = passport.passport(Device("cpu", 1, "cpu"))
    assert entry.found == "its proof raised ValueError: something else"
