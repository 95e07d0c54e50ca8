"""`xpulab report`: the script shows a known defect where xpulab is missing, and the text has what Paddle's form asks for."""

from __future__ import annotations

import ast
import json

import pytest
from typer.testing import CliRunner

from tests.conftest import make, save, usual_plans
from xpulab import cli, files
from xpulab.records.known_issues import load
from xpulab.upstream.cells import slice_for
from xpulab.upstream.flatten import flatten
from xpulab.upstream.modules import CannotFollow

CHECKS = {check.name: (plan.chapter, check) for plan in usual_plans("standard").values() for check in plan.checks}
PARAMETERS = {"device": "cpu", "level": "standard", "cards": 2, "seed": 0}
WITHOUT_SCRIPT = {
    "many-cards.gpt": "xpulab.files has no ROOT that a script could hold",  # it starts sft.py of data/take_home
}
"""Checks of known issues that have no script, and why."""


@pytest.fixture
def xpulab(tmp_path, monkeypatch):
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


@pytest.mark.parametrize("name", sorted({issue.check for issue in load()} & CHECKS.keys()))
def test_every_known_issue_has_a_script_without_xpulab_or_a_reason(name):
    try:
        made = flatten(slice_for(*CHECKS[name], PARAMETERS))
    except CannotFollow as reason:
        assert WITHOUT_SCRIPT[name] == str(reason)
        return
    imports = [node for node in ast.walk(ast.parse(made)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name if isinstance(node, ast.Import) else node.module or "" for node in imports for alias in node.names}
    assert name not in WITHOUT_SCRIPT and imports
    assert {module for module in modules if module.split(".")[0] == "xpulab"} == set()


@pytest.mark.notebooks
@pytest.mark.parametrize(
    "name",
    ["checkpoint.safetensors", "all-to-all.one-rank", "pipeline.all-layers", "shard-dataloader.declared"],
)
def test_the_script_shows_each_known_case_where_xpulab_is_missing(xpulab, tmp_path, monkeypatch, name):
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "xpulab.py").write_text("raise ImportError('xpulab is not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "blocked"))  # of the processes that it starts, so of the script
    done = xpulab("report", name, "--device", "cpu", "--cards", "2", "--out", "report")
    assert (done.exit_code, "exit code" in done.output) == (0, False), done.output
    differing = [line for line in done.output.splitlines() if line.startswith("DIFFERS")]
    for issue in load():
        if issue.check == name and "cpu" in issue.devices:
            assert any(f"{name}, {issue.case}:" in line or issue.case is None for line in differing), (issue.case, differing)


@pytest.mark.notebooks
def test_the_text_has_what_the_form_asks_for_in_both_languages(xpulab, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret-3141592")
    run = tmp_path / "run"
    run.mkdir()
    row = {
        "case": "a",
        "outcome": "failed",
        "measured": 1.5,
        "expected": "1",
        "control": "rejected",
        "reason": "secret-3141592",
    }
    check = {"name": "first-lora.mean-of-the-counted", "outcome": "failed", "means": "the mean", "measured": 1.5, "rows": [row]}
    check |= {"expected": "1", "control": "rejected", "reason": None}
    result = {"device": "sim", "cards": 2, "notebooks": [{"checks": [check]}]}
    (run / "result.json").write_text(json.dumps(result))
    done = xpulab("report", check["name"], "--run", "run")
    assert done.exit_code == 0, done.output
    text = (tmp_path / f"report-{check['name']}" / "issue.md").read_text()
    for part in ("## bug描述 Describe the Bug", "## 其他补充信息 Additional Supplementary Information", "python reproduce.py"):
        assert part in text
    for part in (
        "On sim the check",
        "在 sim 上",
        "| a | 1.5 | 1 |",
        "| device 设备 | cpu |",
        "paddlenlp",
        "cross_entropy",
        "DIFFERS",
    ):
        assert part in text
    assert "secret-3141592" not in text


@pytest.mark.notebooks
@pytest.mark.parametrize(
    "line",
    ["check.equal('demo.red', [1.0, nan], [1.0, nan], control=[2.0, nan])", "check.equal('demo.red', [], [], control=[1])"],
    ids=["nan", "empty"],
)
def test_a_check_that_is_red_for_nan_or_for_an_empty_value_differs_in_its_script_too(xpulab, tmp_path, monkeypatch, line):
    save(make(f"nan = float('nan')\n{line}", level="smoke"), tmp_path / "notebooks" / "00_demo.ipynb")
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path / "notebooks")
    run = xpulab("run", "00_demo", "--device", "cpu", "--out", "run")
    assert (run.exit_code, "demo.red" in run.output) == (1, True), run.output
    done = xpulab("report", "demo.red", "--run", "run")
    assert (done.exit_code, "DIFFERS" in done.output) == (0, True), done.output


@pytest.mark.notebooks
def test_a_check_that_agrees_here_is_said_to_show_nothing(xpulab, tmp_path):
    done = xpulab("report", "indexing.smoke-view", "--device", "cpu", "--out", "report")
    assert (done.exit_code, "shows no difference" in done.output) == (1, True), done.output
    assert "脚本没有发现差异" in (tmp_path / "report" / "issue.md").read_text()


def test_the_known_defects_that_a_run_met_are_listed_with_their_cases(xpulab, tmp_path):
    row = {"case": "float16", "outcome": "known"}
    known = {"name": "n.two", "outcome": "known", "means": "two is two", "reason": "a defect", "rows": [row]}
    checks = [known, {**known, "name": "n.one", "outcome": "passed"}]
    (tmp_path / "result.json").write_text(json.dumps({"device": "cpu", "cards": 1, "notebooks": [{"checks": checks}]}))
    done = xpulab("report", "--known", "--run", ".")
    assert (done.exit_code, "n.two: two is two\n  float16;" in done.output, "n.one" in done.output) == (0, True, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the name of a check, or --known"),
        (["--known"], "give the name of a check, or --known"),
        (["indexing.smoke-vew"], "no chapter has a check 'indexing.smoke-vew'; did you mean indexing.smoke-view"),
        (["many-cards.gpt"], "a script without xpulab cannot be made"),
        (["indexing.smoke-view", "--run", "nowhere"], "nowhere/result.json: cannot be read"),
        (["indexing.smoke-view", "--out", "."], ".: exists already"),
    ],
)
def test_bad_input_is_refused(xpulab, arguments, message):
    device = [] if "--run" in arguments else ["--device", "cpu"]
    done = xpulab("report", *arguments, *device)
    assert (done.exit_code, message in done.output) == (2, True), done.output
