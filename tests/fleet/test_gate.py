"""The gate answers from the last whole run: green, red with the command that repeats it, or unknown."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from typer.testing import CliRunner

from tests.fleet.compare.made_up import check, notebook, row
from tests.fleet.compare.made_up import result as made_up_result
from xpulab import cli
from xpulab.errors import InputError
from xpulab.fleet.gate import GREEN, RED, UNKNOWN, gate, verdict_in

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)


@pytest.fixture
def put(tmp_path):
    """put(notebook, ..., hours=age): a result.json in a folder of its own, or in `folder`; returns the folder of all runs."""

    def write(*notebooks, hours=1.0, outcome="passed", green=True, folder=None, **more):
        folder = tmp_path / (folder or f"run{len(list(tmp_path.iterdir()))}")
        folder.mkdir()
        date = (NOW - timedelta(hours=hours)).isoformat()
        result = {"outcome": outcome, "green": green, "date": date, "level": "smoke", "device": "sim", "cards": 1}
        (folder / "result.json").write_text(json.dumps({**result, "notebooks": notebooks, **more}))
        return tmp_path

    return write


RED_NOTEBOOK = notebook(check("demo.product", "failed", measured=2.5), outcome="failed")
TABLE = check("demo.table", "failed", measured="1 of 2 rows", rows=[row("two ranks"), row("four", "failed", measured=3.0)])
NEVER_RAN = check("demo.sum", "missing", measured=None, reason="interrupted before it started")
INTERRUPTED = notebook(NEVER_RAN, outcome="missing", reason="interrupted before it started")
REPEAT = "xpulab run 00_demo --check demo.product --device sim"


def test_a_green_run_that_is_young_is_green_and_one_that_is_too_old_is_unknown(put):
    folder = put(notebook(check(), check("demo.product")), folder="one")
    for given in (folder, folder / "one"):
        answer = gate(given, 24, NOW)
        assert (answer.code, answer.line) == (GREEN, "xpulab: green 1.0 h ago, 2 checks at level smoke on sim")
    answer = gate(folder, 0.9, NOW)
    assert answer.code == UNKNOWN and "too old" in answer.line


@pytest.mark.parametrize(
    ("notebooks", "changed", "said"),
    [
        ([notebook(check()), RED_NOTEBOOK], {"hours": 0}, f"measured 2.5, expected < 1; rerun: {REPEAT} --level smoke"),
        ([notebook(check()), RED_NOTEBOOK], {"hours": 1000}, f"measured 2.5, expected < 1; rerun: {REPEAT} --level smoke"),
        ([RED_NOTEBOOK], {"cards": 8, "seed": 3}, f"{REPEAT} --cards 8 --level smoke --seed 3"),
        ([notebook(TABLE, outcome="failed")], {}, "demo.table measured 3, four, expected < 1"),
        ([notebook(NEVER_RAN, outcome="missing")], {}, "demo.sum is missing: interrupted before it started"),
        ([notebook(check(), outcome="failed", reason="the kernel died")], {}, "00_demo is failed: the kernel died"),
        ([notebook(outcome="skipped")], {}, "run is red: no notebook was green; rerun: xpulab run --device sim --level"),
        ([INTERRUPTED, RED_NOTEBOOK], {}, "--check demo.sum"),
    ],
    ids=["young", "old", "cards and seed", "table", "never ran", "no red check", "nothing", "interrupted"],
)
def test_a_red_run_names_what_is_red_and_the_command_that_repeats_it(put, notebooks, changed, said):
    answer = gate(put(*notebooks, **{"green": False, "outcome": "failed", **changed}), 24, NOW)
    assert answer.code == RED and said in answer.line
    assert answer.reason.startswith("[node_problem] xpulab ") and said in answer.reason


def test_the_newest_run_counts_and_a_partial_one_and_one_under_way_do_not(put):
    put(notebook(check()), hours=5)
    put(RED_NOTEBOOK, hours=3, green=False, outcome="failed")
    folder = put(notebook(check(), outcome="partial"), hours=1, outcome="partial")
    assert gate(folder, 24, NOW).code == RED
    put(notebook(check()), hours=2)
    put(notebook(check(), outcome="running"), notebook(outcome="waiting"), hours=0, green=False, outcome="running")
    assert gate(folder, 24, NOW).code == GREEN


def test_a_folder_without_a_whole_run_is_an_error_that_says_what_makes_one(put, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        gate(tmp_path / "nowhere", 24, NOW)
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate(tmp_path, 24, NOW)
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate(put(notebook(check(), outcome="partial"), outcome="partial"), 24, NOW)


NO_NOTEBOOKS = {"date": NOW.isoformat(), "green": True, "outcome": "passed", "level": "quick", "device": "cpu", "cards": 1}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"date": "yesterday"}', *(json.dumps({**NO_NOTEBOOKS, "notebooks": each}) for each in (3, [{}]))]
)
def test_a_damaged_result_is_named(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match=r"result\.json: not what `xpulab run` writes"):
        gate(tmp_path, 24, NOW)


def test_a_date_in_the_future_is_no_verdict(put):
    ahead = (NOW - datetime.now(timezone.utc)) / timedelta(hours=1) - 1
    with pytest.raises(InputError, match="in the future"):
        gate(put(notebook(check()), hours=ahead), 24, NOW)


def test_a_drain_reason_is_one_line_that_ends_with_the_command_whatever_was_measured(put):
    long = check("demo.text", "failed", measured="a\nb\x1b[31m" + "x" * 500, expected="y" * 500)
    reason = gate(put(notebook(long, outcome="failed"), green=False, outcome="failed"), 24, NOW).reason
    assert reason.isprintable() and len(reason) < 400 and reason.endswith("--level smoke")


def test_a_run_that_was_interrupted_before_anything_failed_is_no_verdict(put):
    answer = gate(put(notebook(check(), name="01_demo"), INTERRUPTED, green=False, outcome="failed"), 24, NOW)
    assert answer.code == UNKNOWN and "interrupted 1.0 h ago" in answer.line


# --------------------------------------------------------------------------------------------------- the commands, bundles


def answered(*arguments):
    """The exit code of a command, and what it printed."""
    done = CliRunner().invoke(cli.app, [*map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout


def test_the_reason_names_the_first_red_check_and_without_a_verdict_says_why_on_standard_output(put, tmp_path):
    code, printed = answered("gate", put(RED_NOTEBOOK, green=False, outcome="failed"), "--reason")
    start = "[node_problem] xpulab demo.product measured 2.5, expected < 1; rerun: xpulab run"
    assert code == RED and printed.startswith(start)
    code, printed = answered("gate", tmp_path / "nowhere", "--reason")
    assert code == UNKNOWN and printed.startswith("xpulab: unknown, ") and "no such folder" in printed


@pytest.mark.parametrize(
    ("notebooks", "changed", "code", "said"),
    [
        ([notebook(check())], {}, GREEN, "green"),
        ([notebook(check())], {"outcome": "partial"}, GREEN, "a part only: 1 checks"),
        (
            [RED_NOTEBOOK, notebook(NEVER_RAN, name="01_other", outcome="missing")],
            {"green": False, "outcome": "failed"},
            RED,
            "demo.sum is missing",
        ),
        ([INTERRUPTED], {"green": False, "outcome": "failed"}, UNKNOWN, "interrupted"),
    ],
    ids=["green", "partial", "red", "interrupted"],
)
def test_the_verdict_in_a_bundle_is_shown_once_its_checksums_are_verified(put, pack, notebooks, changed, code, said):
    written = put(*notebooks, folder="one", **changed) / "one" / "result.json"
    result = {**made_up_result(), **json.loads(written.read_text())}
    status, printed = answered("judge", pack("node7", result, node="node7"))
    assert (status, said in printed, "1 files with the right checksums; node7" in printed) == (code, True, True)
    for changed_result, digest, why in (
        (result, "0" * 64, "its checksum is another one"),
        ({**result, "cards": "8"}, None, "not what"),
    ):
        with pytest.raises(InputError, match=why):
            verdict_in(pack("damaged", changed_result, digest=digest))
