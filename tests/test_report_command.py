"""`xpulab report`: the issue has what Paddle's form asks for, the cell that compares, and commands that repeat the check."""

from __future__ import annotations

import json
import subprocess
import sys

import nbformat
import pytest
from typer.testing import CliRunner

from tests.conftest import make
from tests.fleet.compare.made_up import check, notebook, result, row
from xpulab import cli

RED = row("float16", "known", measured="1 | 2", expected="1", reason="secret-3141592")
ROWS = [RED, {**RED, "case": "float64", "outcome": "passed"}]
CHECK = check("demo.two", "known", means="two is two", reason="a defect", rows=ROWS)
CELL = 'check.equal("demo.two", 1 + 1, 2, control=3)'


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Runs `xpulab report` in a folder with the folder `run` of a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", "secret-3141592")
    (tmp_path / "run").mkdir()
    nbformat.write(make(CELL, 'check.equal("demo.one", 1, 1, control=2)'), tmp_path / "run" / "07_demo.ipynb")
    checks = [CHECK, {**CHECK, "name": "demo.one", "outcome": "passed", "rows": []}]
    of = {**notebook(*checks, name="07_demo"), "executed": "07_demo.ipynb"}
    made = result(of, device="sim", cards=2, seed=7, versions={"paddlepaddle": "3.3.1"}, machine={"processor": "a fast one"})
    (tmp_path / "run" / "result.json").write_text(json.dumps(made))
    return lambda *arguments: CliRunner().invoke(cli.app, ["report", *arguments], catch_exceptions=False)


def test_the_issue_has_measured_values_versions_and_the_cell(report, tmp_path):
    assert report("demo.two", "--run", "run", "--out", "issue.md").exit_code == 0
    text = (tmp_path / "issue.md").read_text()
    assert "## bug描述 Describe the Bug" in text and "## 其他补充信息 Additional Supplementary Information" in text
    for part in ("two is two", CELL, "| paddlepaddle | 3.3.1 |", "a fast one", r"| float16 | 1 \| 2 | 1 |"):
        assert part in text
    assert not any(part in text for part in ("float64", "demo.one", "secret-3141592"))


def test_its_commands_install_xpulab_and_run_the_check_alone(report, tmp_path):
    assert report("demo.two", "--run", "run").exit_code == 0
    script = (tmp_path / "report-demo.two.md").read_text().partition("```shell\n")[2].partition("```")[0]
    assert script.index("pip install") < script.index("env/requirements/cpu.txt") < script.index("xpulab run")
    assert "xpulab run 07_demo --check demo.two --device sim --cards 2 --level quick --seed 7\n" in script


@pytest.mark.parametrize("outcome", ["known", "predicted"])
def test_the_listed_defects_that_a_run_met_are_shown_with_their_cases_and_whether_they_were_ever_seen(
    report, tmp_path, outcome
):
    stored = (tmp_path / "run" / "result.json").read_text()
    (tmp_path / "run" / "result.json").write_text(stored.replace('"known"', f'"{outcome}"'))
    done = report("--known", "--run", "run")
    assert (done.exit_code, "demo.two: two is two" in done.output, "demo.one" in done.output) == (0, True, False)
    assert "float16" in done.output and "float64" not in done.output
    assert ("never seen" in done.output) is (outcome == "predicted")


def as_typed(line, before=""):
    """The process of `xpulab report` as a line of bash, in the folder that holds `run`."""
    whole = f"{before}exec {sys.executable} -m xpulab report {line}"
    return subprocess.run(["bash", "-c", whole], capture_output=True, text=True, timeout=60)


def test_a_report_that_a_full_disk_ends_leaves_no_file_and_can_be_repeated(report, tmp_path):
    """A limit on the size of files stands for a full disk."""
    before = sorted(tmp_path.iterdir())
    done = as_typed("demo.two --run run", "ulimit -f 0; ")
    assert (done.returncode, "report-demo.two.md: cannot be written" in done.stderr) == (2, True), done.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert report("demo.two", "--run", "run").exit_code == 0


def test_a_list_that_no_disk_holds_is_no_success(report):
    done = as_typed("--known --run run > /dev/full")
    assert (done.returncode, "No space left on device" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("path", ["/{}/07_demo.ipynb", "../07_demo.ipynb", "notebooks/../../07_demo.ipynb", ".."])
def test_a_notebook_outside_of_the_run_is_not_opened(report, tmp_path, path):
    outside = path.format(str(tmp_path).strip("/"))
    (tmp_path / "07_demo.ipynb").write_bytes((tmp_path / "run" / "07_demo.ipynb").read_bytes())
    stored = (tmp_path / "run" / "result.json").read_text()
    (tmp_path / "run" / "result.json").write_text(stored.replace('"07_demo.ipynb"', json.dumps(outside)))
    done = report("demo.two", "--run", "run")
    assert (done.exit_code, "run/result.json: not what `xpulab run` writes" in done.output) == (2, True), done.output
    assert "executed" in done.output and not (tmp_path / "report-demo.two.md").exists()


def test_a_notebook_of_the_release_is_in_a_folder_of_the_run(report, tmp_path):
    (tmp_path / "run" / "release").mkdir()
    (tmp_path / "run" / "07_demo.ipynb").rename(tmp_path / "run" / "release" / "..trainer.ipynb")
    stored = (tmp_path / "run" / "result.json").read_text().replace('"07_demo.ipynb"', '"release/..trainer.ipynb"')
    (tmp_path / "run" / "result.json").write_text(stored.replace('"07_demo"', '"release/..trainer"'))
    assert report("demo.two", "--run", "run").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--run the folder of a run"),
        (["demo.two"], "--run the folder of a run"),
        (["demo.tow", "--run", "run"], "'demo.tow'; did you mean demo.two"),
        (["demo.two", "--run", "nowhere"], "nowhere: holds no result.json"),
        (["demo.two", "--run", "run", "--out", "run"], "run: exists already"),
    ],
)
def test_bad_input_is_refused(report, arguments, message):
    done = report(*arguments)
    assert (done.exit_code, message in done.output) == (2, True), done.output
