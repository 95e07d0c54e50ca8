"""A known issue makes a failing check known and a passing one fixed; other checks are not changed."""

from __future__ import annotations

import pytest

from xpulab.checks import check
from xpulab.records import known_issues

ENTRY = """
- id: wrong-sum
  check: {check}
  versions: {{numpy: "{numpy}"}}
  devices: [{device}]
  symptom: sums are wrong
  reference: measured here
  workaround: add them up by hand
"""


@pytest.fixture
def listed(monkeypatch, tmp_path):
    """A function that makes one entry the list of known issues."""

    def use(check="a.b", numpy=">=1", device="cpu", case=None):
        path = tmp_path / "known_issues.yaml"
        path.write_text(ENTRY.format(check=check, numpy=numpy, device=device) + (f"  case: {case}\n" if case else ""))
        issues = known_issues.load(path)
        monkeypatch.setattr(known_issues, "load", lambda: issues)

    return use


def test_a_listed_check_that_fails_is_known_and_shows_the_workaround(listed, shown):
    listed()
    check.equal("a.b", 3, 1, control=2)
    assert shown.record.outcome == "known"
    assert shown.record.reason == "sums are wrong (measured here). Workaround: add them up by hand"


def test_a_listed_check_that_passes_is_fixed_and_names_the_entry_to_remove(listed, shown):
    listed()
    check.equal("a.b", 1, 1, control=2)
    assert shown.record.outcome == "fixed"
    assert "wrong-sum" in shown.record.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda: check.equal("a.b", 3, 1, control=1),
        lambda: check.equal("a.b", 1, 1, control=1),
        lambda: check.equal("a.b", 3, 1, control=None),
        lambda: check.equal("a.b", lambda: 1 / 0, 1, control=2),
    ],
    ids=["failed, control accepted", "passed, control accepted", "control incomparable", "value raises"],
)
def test_a_broken_check_is_not_known(listed, shown, make):
    listed()
    make()
    assert shown.record.outcome == "broken"


@pytest.mark.parametrize(
    "entry",
    [
        {"check": "a.other"},
        {"device": "xpu"},
        {"numpy": "<1"},
        {"case": "float16"},
    ],
    ids=["another check", "another device", "another version", "only one case of it"],
)
def test_an_issue_of_something_else_does_not_apply(listed, shown, entry):
    listed(**entry)
    check.equal("a.b", 3, 1, control=2)
    assert shown.record.outcome == "failed"


def rows_of_a_table(measured):
    with check.table("a.b", means="it holds") as rows:
        rows.equal("float16", measured, 1, control=2)
        rows.equal("float32", 1, 1, control=2)


@pytest.mark.parametrize(
    ("case", "measured", "rows", "outcome"),
    [
        ("float16", 3, ["known", "passed"], "known"),
        ("float16", 1, ["fixed", "passed"], "fixed"),
        ("float32", 3, ["failed", "fixed"], "failed"),
        (None, 3, ["failed", "passed"], "failed"),
    ],
)
def test_an_issue_of_one_case_is_that_of_its_row_only(listed, shown, case, measured, rows, outcome):
    listed(case=case)
    rows_of_a_table(measured)
    assert ([row.outcome for row in shown.record.rows], shown.record.outcome) == (rows, outcome)
