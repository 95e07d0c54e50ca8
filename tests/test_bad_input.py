"""Bad input gives one message that names it and its remedy, exit code 2, no traceback, and nothing is written."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbformat import v4
from typer.testing import CliRunner

from xpulab import cli


@pytest.fixture
def xpulab(tmp_path, monkeypatch):
    """Runs the command line in an empty folder; an error that it does not report itself is raised."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def notebook(*cells, **metadata):
    """A small notebook of ours with these cells between its imports and its verdict."""
    budget = {"smoke": 60, "quick": 60, "standard": 60}
    own = {"title": "T", "capabilities": ["demo"], "cards": 1, "budget_seconds": budget, **metadata}
    head = v4.new_code_cell('device = "auto"', metadata={"tags": ["parameters"]})
    imports = v4.new_code_cell("from xpulab.checks import check\nfrom xpulab.checks.verdict import verdict")
    body = [v4.new_code_cell(cell) for cell in cells]
    last = v4.new_code_cell("verdict()", metadata={"tags": ["nbval-ignore-output"]})
    section = {"section": "all", "needs": [], "part": "lesson", "level": "quick"}
    heading = v4.new_markdown_cell("## All", metadata={"xpulab": section})
    whole = v4.new_notebook(cells=[head, imports, heading, *body, last])
    whole.metadata.update({"xpulab": own, "kernelspec": {"name": "python3", "display_name": "Python 3"}})
    return whole


GOOD = 'check.equal("demo.good", 2, 2, control=3)'


def no_parameters():
    made = notebook(GOOD)
    made.cells[0].metadata.tags = []
    return made


def no_metadata():
    made = notebook(GOOD)
    del made.metadata["xpulab"]
    return made


# what is given, the files it finds, what the message says
WRONG = {
    "an unknown notebook": (["nope"], {}, ["no notebook 'nope'", "02_sft"]),
    "an unknown level": (["--level", "fast"], {}, ["no level 'fast'", "quick or standard"]),
    "an unknown device": (["--device", "tpu"], {}, ["tpu", "xpu, gpu, cpu"]),
    "an xpu that is not there": (["--device", "xpu"], {}, ["/dev/xpu", "paddlepaddle-xpu==3.3.0", "modprobe kunlun"]),
    "a gpu that is not there": (["--device", "gpu"], {}, ["nvidia-smi", "paddlepaddle-gpu==3.3.1"]),
    "no card": (["--cards", "0"], {}, ["--cards"]),
    "no job": (["--jobs", "0"], {}, ["--jobs"]),
    "a file where the reports go": (["--out", "n.ipynb"], {"n.ipynb": notebook(GOOD)}, ["n.ipynb", "--out"]),
    "invalid JSON": (["n.ipynb"], {"n.ipynb": '{"cells": [\n'}, ["n.ipynb line 2", "not JSON"]),
    "JSON that is no notebook": (["n.ipynb"], {"n.ipynb": '{"a": 1}'}, ["n.ipynb", "not a notebook"]),
    "no parameters cell": (["n.ipynb"], {"n.ipynb": no_parameters()}, ["n.ipynb", "parameters"]),
    "no metadata": (["n.ipynb"], {"n.ipynb": no_metadata()}, ["n.ipynb", "CONTRIBUTING.md"]),
    "metadata that does not fit": (["n.ipynb"], {"n.ipynb": notebook(GOOD, cards=0)}, ["n.ipynb", "cards"]),
    "a check's name twice": (["n.ipynb"], {"n.ipynb": notebook(GOOD, GOOD)}, ["n.ipynb cell 4 line 1", "demo.good"]),
    "a check's name in two notebooks": (
        ["n.ipynb", "m.ipynb"],
        {"n.ipynb": notebook(GOOD), "m.ipynb": notebook(GOOD)},
        ["m.ipynb cell 3", "n.ipynb"],
    ),
    "a check's name that is no literal": (
        ["n.ipynb"],
        {"n.ipynb": notebook("check.equal(name, 2, 2, control=3)")},
        ["n.ipynb cell 3 line 1", "literal"],
    ),
    "a check of another capability": (
        ["n.ipynb"],
        {"n.ipynb": notebook(GOOD.replace("demo", "sft"))},
        ["n.ipynb cell 3 line 1", "capability"],
    ),
    "a folder that holds another run": (
        ["n.ipynb", "--out", "."],
        {"n.ipynb": notebook(GOOD), "result.json": "{}"},
        ["holds another run", "--out"],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_says_what_is_wrong_and_exits_with_2(wrong, xpulab, tmp_path):
    arguments, holds, said = WRONG[wrong]
    for name, content in holds.items():
        text = content if isinstance(content, str) else nbformat.writes(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = xpulab("run", *arguments)
    message = " ".join(done.stderr.split())
    assert done.exit_code == 2, done.stdout + done.stderr
    assert [part for part in said if part not in message] == []
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == set(holds)


@pytest.mark.parametrize("command", ["run", "baseline"])
def test_a_file_of_baselines_that_cannot_be_read_is_named_before_anything_runs(command, xpulab, tmp_path, monkeypatch):
    (tmp_path / "cpu.json").write_text('{"schema": 1, "device": "cpu",\n "baselines": []}')
    monkeypatch.setenv("XPULAB_BASELINES", str(tmp_path))
    done = xpulab(command, "--device", "cpu")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "cpu.json line 2: [] should be non-empty" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"cpu.json"}


def test_a_baseline_of_one_run_has_no_spread(xpulab):
    done = xpulab("baseline", "--runs", "1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--runs" in done.stderr


def test_the_doctor_speaks_json(xpulab):
    assert json.loads(xpulab("doctor", "--json").stdout)["device"] == "cpu"
