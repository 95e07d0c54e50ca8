"""The gate answers from the last whole run: green, red with the command that repeats it, or unknown."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from xpulab.errors import InputError
from xpulab.fleet.gate import GREEN, RED, UNKNOWN, gate

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)
ROW = {"case": "two ranks", "outcome": "passed", "measured": 0.1, "expected": "< 1", "control": "rejected", "reason": None}


def check(name="demo.sum", outcome="passed", **changed):
    return {"name": name, "outcome": outcome, "measured": 0.25, "expected": "< 1", "reason": None, "rows": [], **changed}


def notebook(*checks, outcome="passed", name="00_demo", reason=None):
    return {"name": name, "outcome": outcome, "reason": reason, "compared": len(checks), "checks": list(checks)}


@pytest.fixture
def put(tmp_path):
    """put(notebook, ..., hours=age): a result.json in a folder of its own, or in `folder`; returns the folder of all runs."""

    def write(*notebooks, hours=1.0, outcome="passed", green=True, folder=None):
        folder = tmp_path / (folder or f"run{len(list(tmp_path.iterdir()))}")
        folder.mkdir()
        date = (NOW - timedelta(hours=hours)).isoformat()
        result = {"outcome": outcome, "green": green, "date": date, "level": "smoke", "device": "sim", "notebooks": notebooks}
        (folder / "result.json").write_text(json.dumps(result))
        return tmp_path

    return write


def test_a_green_run_that_is_young_is_green(put):
    folder = put(notebook(check(), check("demo.product")))
    assert gate(folder, 24, NOW).code == GREEN
    assert gate(folder, 24, NOW).line == "xpulab: green 1.0 h ago, 2 checks at level smoke on sim"


def test_the_folder_of_one_run_is_a_folder_too(put):
    assert gate(put(notebook(check()), folder="one") / "one", 24, NOW).code == GREEN


def test_a_green_run_that_is_too_old_is_unknown(put):
    answer = gate(put(notebook(check()), hours=24.1), 24, NOW)
    assert answer.code == UNKNOWN and "too old" in answer.line


@pytest.mark.parametrize("hours", [0, 1000])
def test_a_red_run_names_the_check_and_the_command_whatever_its_age(put, hours):
    red = notebook(check(), check("demo.product", "failed", measured=2.5), outcome="failed")
    answer = gate(put(notebook(check()), red, green=False, outcome="failed", hours=hours), 24, NOW)
    repeat = "xpulab run 00_demo --check demo.product --device sim --level smoke"
    assert answer.code == RED
    assert answer.line.endswith(f"demo.product measured 2.5, expected < 1; repeat: {repeat}")


def test_of_a_table_the_first_red_row_is_named(put):
    rows = [ROW, {**ROW, "case": "four ranks", "outcome": "failed", "measured": 3.0}]
    table = check("demo.table", "failed", measured="1 of 2 rows", rows=rows)
    line = gate(put(notebook(table, outcome="failed"), green=False, outcome="failed"), 24, NOW).line
    assert "demo.table measured 3, four ranks, expected < 1" in line


def test_a_check_that_never_ran_says_why(put):
    missing = check("demo.sum", "missing", measured=None, reason="interrupted before it started")
    line = gate(put(notebook(missing, outcome="missing"), green=False, outcome="failed"), 24, NOW).line
    assert "demo.sum is missing: interrupted before it started" in line


def test_a_notebook_that_is_red_without_a_red_check_says_why(put):
    dead = notebook(check(), outcome="failed", reason="the kernel died in cell 3")
    assert "00_demo is failed: the kernel died" in gate(put(dead, green=False, outcome="failed"), 24, NOW).line


def test_the_newest_run_counts_and_a_partial_one_does_not(put):
    put(notebook(check()), hours=5)
    red = notebook(check(outcome="failed"), outcome="failed")
    put(red, hours=3, green=False, outcome="failed")
    folder = put(notebook(check(), outcome="partial"), hours=1, outcome="partial")
    assert gate(folder, 24, NOW).code == RED
    assert gate(put(notebook(check()), hours=2), 24, NOW).code == GREEN


def test_a_folder_without_a_whole_run_is_an_error_that_says_what_makes_one(put, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        gate(tmp_path / "nowhere", 24, NOW)
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate(tmp_path, 24, NOW)
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate(put(notebook(check(), outcome="partial"), outcome="partial"), 24, NOW)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"date": "yesterday"}'])
def test_a_damaged_result_is_named(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match=r"result\.json: not what `xpulab run` writes"):
        gate(tmp_path, 24, NOW)


def test_a_date_in_the_future_is_no_verdict(put):
    with pytest.raises(InputError, match="in the future"):
        gate(put(notebook(check()), hours=-1), 24, NOW)
