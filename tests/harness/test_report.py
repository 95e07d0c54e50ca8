"""The three reports say the same, fit their formats whatever was measured, and leave no check out."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import jsonschema
import pytest

from xpulab import files
from xpulab.devices import DEVICES
from xpulab.harness import report
from xpulab.harness.execute import Run, RunOptions
from xpulab.harness.judge import Group, Verdict
from xpulab.harness.report.result import PARTIAL, Result
from xpulab.harness.report.text import format_result
from xpulab.records.record import OUTCOMES, Record, Row, RunContext

RUN = Run("cpu", "quick", 1, 2.0, 30.0, None)
NASTY = "<script>alert('1')</script> & \x1b[31mred\x1b[0m \x00 \ufffe \uffff \udc80 \r ü"


def record(name, outcome="passed", **changed):
    control = "not tried" if outcome in ("skipped", "missing") else "rejected"
    values = {"means": f"what {name} means", "control": control, "measured": 0.5, "expected": "< 1", **changed}
    return Record(name, outcome, **values)


def verdict(name, *records, outcome="passed", reasons=(), folder=None, run_context=None, title=None):
    executed = folder / "notebooks" / f"{name}.ipynb" if folder else None
    run = RUN if folder else None
    groups = (Group("the section", "lesson", records),)
    return Verdict(name, title or f"On {name}", outcome, run, groups, run_context, tuple(reasons), executed)


def result_of(*verdicts, device="cpu", folder=None):
    return Result(RunOptions(device, "quick", 1), verdicts, 12.34, folder)


@pytest.fixture
def reported(tmp_path):
    """Writes the reports on these verdicts; returns result.json, junit.xml's root and the page."""

    def write(*verdicts, device="cpu"):
        report.write(result_of(*verdicts, device=device, folder=tmp_path))
        text = (tmp_path / "result.json").read_text(encoding="utf-8")
        result = json.loads(text, parse_constant=lambda name: pytest.fail(f"result.json holds {name}"))
        schema = json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(schema).validate(result)
        page = (tmp_path / "index.html").read_text(encoding="utf-8")
        return result, ElementTree.parse(tmp_path / "junit.xml").getroot(), page

    return write


@pytest.fixture
def everything(reported, verdicts):
    """The reports on a run in which each outcome came up, and each way that a notebook ends."""
    return reported(*verdicts)


DEFECT = Row("float32", "known", 3.0, "< 1", "rejected", "a defect")


@pytest.fixture
def verdicts(tmp_path):
    rows = (Row("float16", "passed", 0.1, "< 1", "rejected"), DEFECT)
    context = RunContext("cpu", 1, {"cores": 4, "load": math.nan}, {"paddlepaddle": "3.3.1"})
    records = [record(f"mixed.{outcome}", outcome, reason=f"since {outcome}") for outcome in OUTCOMES]
    gone = record("gone.one", "missing", reason="interrupted before it started")
    green = (record("green.one"), record("green.two", rows=rows))
    return (
        verdict("green", *green, folder=tmp_path, run_context=context),
        verdict("mixed", *records, outcome="failed", reasons=["3 of 9 checks are red", "a cell raised"], folder=tmp_path),
        verdict("text", record("text.one"), outcome="failed", reasons=["it shows another text"], folder=tmp_path),
        verdict("cards", record("cards.one", "skipped", reason="2 cards"), outcome="skipped", reasons=["it needs 2 cards"]),
        verdict("gone", gone, outcome="missing", reasons=["interrupted before it started"]),
        verdict("empty", outcome="failed", reasons=["nothing was compared"], folder=tmp_path),
    )


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text that a reader sees."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


# ----------------------------------------------------------------------------------------------------------- result.json


def test_the_result_holds_what_the_verdicts_say(everything):
    result = everything[0]
    assert (result["outcome"], result["seconds"], result["cards"], result["level"]) == ("failed", 12.3, 1, "quick")
    assert result["versions"] == {"paddlepaddle": "3.3.1"} and result["machine"]["cores"] == 4
    green, mixed, text, cards, gone, empty = result["notebooks"]
    assert (green["planned"], green["compared"], green["controls_rejected"], green["seconds"]) == (2, 2, 2, 2.0)
    assert (green["executed"], green["reason"]) == ("notebooks/green.ipynb", None)
    check = green["checks"][1]
    assert (check["name"], check["capability"], check["expected"], check["measured"]) == ("green.two", "green", "< 1", 0.5)
    assert {**check["rows"][1], "digest": None} == asdict(DEFECT)
    assert (mixed["planned"], mixed["compared"], mixed["reason"]) == (9, 7, "3 of 9 checks are red; a cell raised")
    assert [check["outcome"] for check in mixed["checks"]] == list(OUTCOMES)
    assert result["outcomes"] == {
        "passed": 4,
        "skipped": 2,
        "missing": 2,
        **dict.fromkeys(set(OUTCOMES) - {"passed", "skipped", "missing"}, 1),
    }
    assert (text["outcome"], cards["outcome"], gone["outcome"]) == ("failed", "skipped", "missing")
    assert (cards["executed"], cards["compared"], cards["seconds"], empty["checks"]) == (None, 0, 0.0, [])


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        (["passed"], "passed"),
        (["passed", "skipped"], "passed"),
        (["skipped"], "failed"),
        (["passed", "failed"], "failed"),
        (["passed", "missing"], "failed"),
        (["missing"], "failed"),
    ],
    ids=str,
)
def test_green_needs_a_passed_notebook_and_no_red_one(reported, outcomes, whole):
    verdicts = [verdict(f"n{number}", record(f"n{number}.one"), outcome=each) for number, each in enumerate(outcomes)]
    assert reported(*verdicts)[0]["outcome"] == whole


NUMBERS = [(each, str(each)) for each in (math.inf, -math.inf, math.nan)]
NUMBERS += [(each, each) for each in (1.7e308, 10**400, -0.0, "a sentence", None)]


@pytest.mark.parametrize(("measured", "stored"), NUMBERS, ids=lambda value: repr(value)[:9])
def test_what_was_measured_is_stored_as_it_is_or_in_words_where_json_cannot_hold_it(reported, measured, stored):
    row = Row("one", "failed", measured, "< 1", "rejected")
    result, _, page = reported(verdict("n", record("n.one", "failed", measured=measured, rows=(row,)), outcome="failed"))
    check = result["notebooks"][0]["checks"][0]
    assert (check["measured"], check["rows"][0]["measured"]) == (stored, stored)
    assert measured == stored or f">{measured}<" in page


# ------------------------------------------------------------------------------------------------------------- junit.xml


def test_junit_has_a_case_a_check_and_says_of_each_what_the_result_says(everything):
    result, root, _ = everything
    for suite, notebook in zip(root, result["notebooks"], strict=True):
        cases = suite.findall("testcase")
        names = [case.get("name") for case in cases if case.get("name") != "the notebook"]
        assert (suite.get("name"), names) == (notebook["name"], [check["name"] for check in notebook["checks"]])
        assert int(suite.get("tests")) == len(cases)
        for attribute, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{element}"))
        is_red = int(suite.get("failures")) + int(suite.get("errors")) > 0
        assert is_red is (notebook["outcome"] in ("failed", "missing"))
    tags = {"failed": ["failure"], "broken": ["error"], "skipped": ["skipped"], "missing": ["error"]}
    tags |= {"passed": [], **{each: ["system-out"] for each in ("known", "fixed", "predicted", "refuted")}}
    cases = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert {name.removeprefix("mixed."): tags for name, tags in cases.items() if name.startswith("mixed.")} == tags
    told = {suite.get("name"): suite.find("testcase[@name='the notebook']/error") for suite in root}
    assert told["text"].get("message") == "it shows another text"
    assert told["mixed"] is None and told["green"] is None and told["cards"] is None
    assert next(root.iter("failure")).text == "measured 0.5, expected < 1, control rejected. since failed"


def test_no_report_holds_a_character_that_xml_forbids_or_a_terminal_obeys(reported, tmp_path):
    records = [record(f"n.{outcome}", outcome, means=NASTY, reason=NASTY, measured=NASTY) for outcome in OUTCOMES]
    context = RunContext("cpu", 1, {NASTY: NASTY}, {NASTY: NASTY})
    verdicts = [verdict("n", *records, outcome="failed", run_context=context), verdict("m", outcome="failed", reasons=[NASTY])]
    _, root, page = reported(*verdicts)
    metrics = (tmp_path / "metrics.prom").read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page + metrics) and r"\x1b[31mred" in page
    clean = "<script>alert('1')</script> & \\x1b[31mred\\x1b[0m \\x00 \\ufffe \\uffff \\udc80 \r ü"
    assert next(root.iter("failure")).get("message") == clean
    assert root.find(".//testcase[@name='the notebook']/error").get("message") == clean


# ------------------------------------------------------------------------------------------------------------ index.html


def test_the_page_names_every_check_and_every_reason_and_links_the_executed_notebooks(everything):
    result, _, page = everything
    tags = Tags(page)
    for notebook in result["notebooks"]:
        assert notebook["title"] in tags.text
        assert [reason for reason in (notebook["reason"] or "").split("; ") if reason not in tags.text] == []
        assert [check["name"] for check in notebook["checks"] if check["name"] not in tags.text] == []
    for text in ("since broken", "the section", "float32", "3.3.1", "NOT READY"):
        assert text in tags.text
    links = [attributes["href"] for tag, attributes in tags.tags if tag == "a"]
    executed = [f"notebooks/{name}.ipynb" for name in ("green", "mixed", "text", "empty")]
    assert [link for link in links if link[0] != "#"] == executed


# -------------------------------------------------------------------------------------------------------------- terminal


def test_the_terminal_shows_what_is_wrong_and_the_verdict(verdicts):
    lines = format_result(result_of(*verdicts)).splitlines()
    assert "passed  green  2 of 2 checks compared, 2.0 s" in lines
    assert "expected on this device, never seen: 1 checks; 1 did not come true" in lines
    for outcome in ("failed", "broken", "fixed", "predicted", "refuted"):
        assert f"        {outcome} mixed.{outcome}: what mixed.{outcome} means" in lines
    assert "        it needs 2 cards" in lines
    assert lines[-1] == "RED: 1 of 6 notebooks passed, 10 checks compared, 10 controls rejected, on cpu in 12 s"
    good = format_result(result_of(verdict("n", record("n.one"))))
    assert good.splitlines()[-1].startswith("green: 1 of 1 notebooks passed")


@pytest.mark.parametrize("device", DEVICES)
def test_every_report_says_what_its_device_does_not_prove(reported, device):
    result, root, page = reported(verdict("n", record("n.one")), device=device)
    stated = {each.get("name"): each.get("value") for each in root[0].iter("property")}
    assert stated == {"device": device, "level": "quick", "verdict": result["verdict"], "scope": result["scope"]}
    text = format_result(result_of(verdict("n", record("n.one")), device=device))
    assert result["scope"] in html.unescape(page) and result["scope"] in text
    assert {"cpu": "the CPU", "gpu": "a GPU", "xpu": "Kunlun XPU", "sim": "simulated cards"}[device] in result["scope"]


# --------------------------------------------------------------------------------------------------------- a partial run


def partial(outcome, *records):
    return replace(verdict("part", *records, outcome=outcome), partial=True)


@pytest.mark.parametrize(("outcome", "green"), [("partial", True), ("failed", False)])
def test_a_partial_run_is_never_a_verdict_on_the_machine(reported, outcome, green):
    run = partial(outcome, record("part.one", "passed" if green else "failed"))
    result, root, page = reported(run)
    assert (result["outcome"], result["green"], result_of(run).is_green) == ("partial", green, green)
    stated = {each.get("name"): each.get("value") for each in root[0].iter("property")}
    assert root.get("name") == "xpulab (partial)" and stated["partial"] == PARTIAL
    shown = Tags(page).text
    assert "Partial run" in shown and PARTIAL in shown and "READY" not in shown
    lines = format_result(result_of(run)).splitlines()
    assert PARTIAL in lines and lines[-1].startswith("partial, green: " if green else "partial, RED: ")
