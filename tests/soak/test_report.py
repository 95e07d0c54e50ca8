"""The reports of a soak name the first problem with its round, fit their schemas, and decide the exit code."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.conftest import CHINESE, assert_chinese
from xpulab import files
from xpulab.harness.execute import Target
from xpulab.harness.plan import make_plans
from xpulab.messages import shown
from xpulab.soak import report, rounds
from xpulab.soak.report import Summary
from xpulab.soak.values import Place, Problem, Value

DIFFERENCE = Problem("difference", Place("02_sft", "sft.trajectory", "step 3"), "2", Value(1.0, "aa", 1), Value(2.0, "bb", 3))


@pytest.fixture
def summary(tmp_path):
    """summary(round, ...): a soak of 02_sft on xpu with these rounds."""
    plans = tuple(make_plans(["02_sft"], "quick"))

    def make(*given, interrupted=False, hours=1.0):
        bad = next((each.number for each in given if each.found), None)
        return Summary(Target("xpu", "quick", 8), plans, given, 3600.0, hours, interrupted, tmp_path, bad)

    return make


def valid(value, schema):
    loaded = json.loads(files.data("schema", schema).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(loaded, format_checker=jsonschema.FormatChecker()).validate(value)
    return value


@pytest.mark.parametrize("interrupted", [False, True])
def test_something_found_is_exit_code_1_however_it_ended(summary, round_of, problem, interrupted):
    assert summary(round_of(1), round_of(2, problem()), interrupted=interrupted).exit_code == 1


def test_nothing_found_is_0_at_the_end_and_130_when_interrupted(summary, round_of):
    assert summary(round_of(1), round_of(2)).exit_code == 0
    assert summary(round_of(1), round_of(2), interrupted=True).exit_code == 130


def test_a_soak_that_compared_no_two_rounds_is_not_green(summary, round_of):
    once = summary(round_of(1, repeated=0))
    assert (once.exit_code, once.outcome) == (2, "nothing compared")
    assert "no verdict" in report.format_summary(once)


def test_the_summary_names_the_first_problem_with_round_time_and_temperature(summary, round_of, problem):
    text = report.format_summary(summary(round_of(1), round_of(3, DIFFERENCE), round_of(4, DIFFERENCE, problem())))
    assert "first problem: round 3 (seed 0, 2026-11-22 03:03:00, card 0 63 °C 1450 MHz): 02_sft sft.trajectory, step 3" in text
    assert "sft.trajectory, step 3: difference in 2 of 3 rounds, first in round 3" in text
    assert "rounds/0003/index.html" in text and "RED" in text


def test_the_summary_has_the_spread_of_times_and_temperatures(summary, round_of):
    text = report.format_summary(summary(round_of(1), round_of(2), round_of(5)))
    assert "51 to 55 s, median 52 s" in text
    assert "61 to 65 °C; 1450 to 1450 MHz; 90 to 90 W; 504 to 504 MiB" in text


def test_what_is_worth_knowing_of_rounds_is_said_once(summary, round_of):
    note = "09_collectives is skipped: it needs 2 cards, and --cards allows 1"
    text = report.format_summary(summary(round_of(1, notes=(note,)), round_of(2, notes=(note,))))
    assert text.count(note) == 1
    assert report.format_round(round_of(1, notes=(note,))).endswith(f"note: {note}")


def test_the_line_of_a_round_fits_its_schema(round_of, problem):
    line = valid(rounds.round_to_json(round_of(3, DIFFERENCE, problem())), "soak_round.schema.json")
    assert [each["kind"] for each in line["problems"]] == ["difference", "red"]
    assert line["problems"][0]["before"] == {"measured": 1.0, "digest": "aa", "number": 1}
    assert line["parts"]["card 0"]["temperature_c"] == [63.0, 63.0]


@pytest.mark.parametrize("with_rounds", [True, False])
def test_the_summary_for_programs_fits_its_schema(summary, round_of, problem, with_rounds):
    given = (round_of(1), round_of(2, DIFFERENCE), round_of(4, problem())) if with_rounds else ()
    stored = valid(report.to_json(summary(*given, interrupted=True, hours=None)), "soak_result.schema.json")
    assert stored["first_bad_round"] == (2 if with_rounds else None)
    assert [each["check"] for each in stored["problems"]] == (["sft.trajectory", "sft.recall"] if with_rounds else [])


def test_junit_has_a_case_for_each_check_and_names_the_bad_rounds(summary, round_of, problem):
    bad = summary(round_of(1), round_of(2, DIFFERENCE), round_of(4, DIFFERENCE, problem("the notebook")))
    root = ElementTree.fromstring(report.files(bad)["junit.xml"].split("\n", 1)[1])
    [suite] = root
    failed = {case.get("name"): case.find("failure").get("message") for case in suite if case.find("failure") is not None}
    assert failed == {"sft.trajectory": "difference in round 2, 4", "the notebook": "red in round 4"}
    assert (suite.get("failures"), int(suite.get("tests"))) == ("2", len(bad.plans[0].checks) + 1)


def test_a_round_in_a_terminal_is_one_line_and_one_for_each_problem(round_of, problem):
    good, bad = report.format_round(round_of(1)), report.format_round(round_of(2, problem()))
    assert good == "03:01:00  round 1, seed 0: passed, 7 checks compared, 5 values repeated, 51 s, card 0 61 °C 1450 MHz"
    assert bad.splitlines()[1].endswith("02_sft sft.recall: red: measured 3")


def test_what_people_read_of_a_soak_is_chinese_and_what_programs_read_stays(summary, round_of, problem, chinese):
    given = (round_of(1), round_of(3, DIFFERENCE, problem(), notes=("sft is skipped: it needs 2 cards, and --cards allows 1",)))
    written = report.files(summary(*given))
    for line in [*written["summary.txt"].splitlines(), *shown(report.format_round(given[1])).splitlines()]:
        assert_chinese(line.partition("报告在 ")[0])
    assert (
        "第一个问题：第 3 轮（种子 0，2026-11-22 03:03:00, card 0 63 °C 1450 MHz）：02_sft sft.trajectory"
        in written["summary.txt"]
    )
    assert "  轮次         2，其中 2 轮完整；种子 0" in written["summary.txt"]
    assert not CHINESE.search(written["junit.xml"] + written["soak.json"])
