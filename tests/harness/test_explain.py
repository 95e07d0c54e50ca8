"""Known errors of a red notebook are explained with cause and command, wherever they appear, and in every report."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import nbformat
import pytest
from nbformat import v4

from tests.conftest import GOOD
from xpulab.harness import report
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.harness.report.result import Result
from xpulab.harness.report.text import format_result
from xpulab.ranks.report import RankReport, RanksFailed
from xpulab.records.record import Record, RunContext

MISSING_DOWNLOAD = "cannot import name 'download' from 'aistudio_sdk.hub' (site-packages/aistudio_sdk/hub.py)"
ABNORMAL = "[WARN][XPURT][xpu_wait:512] ioctl() fail, (713) Device abnormal due to previous error"


def error(kind, message, *traceback):
    return v4.new_output("error", ename=kind, evalue=message, traceback=[*traceback, f"\x1b[31m{kind}\x1b[39m: {message}"])


def shown(outcome, reason=None):
    record = Record("demo.good", outcome, "two is two", control="rejected", reason=reason)
    return v4.new_output("display_data", data={"text/plain": "the check"}, metadata=record.to_metadata())


@pytest.fixture
def judged(tmp_path, book):
    """A function that judges a notebook whose only section shows these outputs; log: what its kernel printed."""

    def judge_it(*outputs, log=None):
        notebook = book(v4.new_code_cell(GOOD, metadata={"tags": ["nbval-ignore-output"]}))
        _, imports, _, body, _ = notebook.cells
        nbformat.write(notebook, tmp_path / "demo.ipynb")
        plan = read_plan(tmp_path / "demo.ipynb", "quick")
        here = v4.new_output("display_data", data={"text/plain": "cpu"}, metadata=RunContext("cpu", 1).to_metadata())
        imports.outputs, body.outputs = [here], list(outputs)
        (tmp_path / "notebooks").mkdir()
        executed = tmp_path / "notebooks" / "demo.ipynb"
        nbformat.write(notebook, executed)
        if log is not None:
            executed.with_suffix(".log").write_text(log)
        return judge(plan, executed)

    return judge_it


RANKS = [
    RankReport(0, "late", "waits for other ranks after 9 s", "", "", ""),
    RankReport(1, "killed", "killed by signal 6 (SIGABRT)", "", "", f"step 3\n{ABNORMAL}"),
]
RAISED = error("ImportError", MISSING_DOWNLOAD)
LED = error("RuntimeError", "no model", f"\x1b[31mImportError\x1b[39m: {MISSING_DOWNLOAD}")
FIX = "python -m pip install 'aistudio-sdk<0.3'"


@pytest.mark.parametrize(
    ("outputs", "log", "explained"),
    [
        ([RAISED], None, [("aistudio-sdk", "cell 3", FIX)]),
        ([LED], None, [("aistudio-sdk", "cell 3", FIX)]),
        ([error("RanksFailed", str(RanksFailed(1, "", RANKS)))], None, [("xpu-abnormal", "cell 3")]),
        ([shown("broken", f"ImportError: {MISSING_DOWNLOAD}")], None, [("aistudio-sdk", "check demo.good", FIX)]),
        ([], f"step 1\n{ABNORMAL}\n", [("xpu-abnormal", "kernel log")]),
    ],
    ids=["raised", "led to another", "of a rank", "red check", "kernel log"],
)
def test_what_is_explained_once_with_the_first_place_and_the_command(judged, outputs, log, explained):
    found = judged(*outputs, log=log).explanations
    assert [
        (known.id, known.where, known.remedy)[: len(each)] for known, each in zip(found, explained, strict=True)
    ] == explained


def test_every_report_shows_cause_and_command(judged, tmp_path):
    result = Result(RunOptions("cpu", "quick", 1), (judged(error("ImportError", MISSING_DOWNLOAD)),), 1.0, tmp_path)
    report.write(result)
    cause, command = "aistudio-sdk 0.3 removed hub.download", "python -m pip install 'aistudio-sdk<0.3'"
    (stored,) = json.loads((tmp_path / "result.json").read_text())["notebooks"]
    junit = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite/system-out").text
    page = (tmp_path / "index.html").read_text().replace("&#39;", "'").replace("&lt;", "<")
    assert [known["remedy"] for known in stored["explanations"]] == [command]
    assert all(cause in text and command in text for text in (junit, page, format_result(result)))
