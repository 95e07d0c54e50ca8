"""A known issue makes a failing check known and a passing one fixed, one that was never seen here predicted and refuted.

Other checks are not changed.
"""

from __future__ import annotations

import pytest

from xpulab.checks import check
from xpulab.checks.ledger import ledger
from xpulab.devices import STANDS_FOR
from xpulab.records import known_issues
from xpulab.records.record import RunContext, is_green

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

    def use(check="a.b", numpy=">=1", device="cpu", case=None, more=""):
        path = tmp_path / "known_issues.yaml"
        path.write_text(ENTRY.format(check=check, numpy=numpy, device=device) + (f"  case: {case}\n" if case else "") + more)
        issues = known_issues.load(path)
        monkeypatch.setattr(known_issues, "_listed", lambda: issues)

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


SHOWS = "  cause: kernel\n  unseen: [gpu, xpu]\n  shows: it is False\n"


@pytest.mark.parametrize("here", [("xpu",), ("sim", "xpu"), ("gpu",)], ids="-".join)
def test_what_is_expected_hides_no_other_wrong_value(listed, shown, on, here):
    listed(device="gpu, xpu", more=SHOWS)
    on(*here)
    check.equal("a.b", "another text", "it holds", control="no")
    assert (shown.record.outcome, is_green([shown.record])) == ("failed", False)
    assert "'another text', not 'it holds'; wrong-sum in data/known_issues.yaml is another defect" in shown.record.reason
    check.equal("a.b", "here it is False", "it holds", control="no")
    assert shown.record.outcome == "predicted"


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


UNSEEN = "  cause: kernel\n  unseen: [gpu, xpu]\n"


@pytest.fixture
def on(monkeypatch):
    """A function that makes the checks run on a device, or on simulated cards that stand for another one."""

    def use(device, stands_for=""):
        monkeypatch.setenv(STANDS_FOR, stands_for)
        ledger.run_context = RunContext(device, 1)

    return use


HERE = pytest.mark.parametrize("here", [("xpu",), ("gpu",), ("sim", "xpu"), ("sim", "gpu")], ids="-".join)


@HERE
def test_what_is_expected_and_was_never_seen_is_predicted_and_not_red(listed, shown, on, here):
    listed(device="gpu, xpu", more=UNSEEN)
    on(*here)
    check.equal("a.b", 3, 1, control=2)
    assert (shown.record.outcome, is_green([shown.record])) == ("predicted", True)
    assert shown.record.reason.startswith("expected on this device, never seen: sums are wrong")
    assert shown.text.startswith("predicted a.b  ")


@HERE
def test_a_card_on_which_it_passes_refutes_it_and_a_rehearsal_does_not(listed, shown, on, here):
    listed(device="gpu, xpu", more=UNSEEN)
    on(*here)
    check.equal("a.b", 1, 1, control=2)
    assert (shown.record.outcome, is_green([shown.record])) == ("refuted" if len(here) == 1 else "passed", True)
    assert len(here) == 2 or "wrong-sum" in shown.record.reason


@HERE
def test_a_wrong_value_that_is_not_expected_stays_red_beside_one_that_is(listed, shown, on, here):
    listed(device="gpu, xpu", case="float32", more=UNSEEN)
    on(*here)
    with check.table("a.b", means="it holds") as rows:
        for dtype in ("float16", "float32"):
            rows.equal(dtype, 3, 1, control=2)
    assert [row.outcome for row in shown.record.rows] == ["failed", "predicted"]
    assert (shown.record.outcome, is_green([shown.record])) == ("failed", False)


@pytest.mark.parametrize(
    ("devices", "more", "here", "outcome"),
    [
        ("cpu, xpu, sim", "  cause: kernel\n  unseen: [xpu]\n", ("sim", "xpu"), "known"),
        ("cpu, sim", "  cause: kernel\n", ("sim", "xpu"), "known"),
        ("cpu, sim", "  cause: branch\n", ("sim", "gpu"), "known"),
        ("cpu, gpu, xpu, sim", "", ("sim", "xpu"), "known"),
        ("cpu, gpu, xpu, sim", "", ("xpu",), "known"),
        ("cpu, sim", "", ("sim", "xpu"), "failed"),
        ("cpu, sim", "  cause: kernel\n", ("xpu",), "failed"),
        ("gpu", UNSEEN, ("sim", "xpu"), "failed"),
    ],
)
def test_a_rehearsal_has_the_defects_of_its_card_and_those_of_what_computes(listed, shown, on, devices, more, here, outcome):
    listed(device=devices, more=more)
    on(*here)
    check.equal("a.b", 3, 1, control=2)
    assert shown.record.outcome == outcome
