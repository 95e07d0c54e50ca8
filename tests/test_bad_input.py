"""Bad input gives one message that names it and its remedy, exit code 2, no traceback, and nothing is written."""

from __future__ import annotations

import nbformat
import pytest
from typer.testing import CliRunner

from tests.conftest import make
from xpulab import cli


@pytest.fixture
def xpulab(tmp_path, monkeypatch):
    """Runs the command line in an empty folder; an error that it does not report itself is raised."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


GOOD = 'check.equal("demo.good", 2, 2, control=3)'


def no_parameters():
    made = make(GOOD)
    made.cells[0].metadata.tags = []
    return made


def no_metadata():
    made = make(GOOD)
    del made.metadata["xpulab"]
    return made


# what is given, the files it finds, what the message says
WRONG = {
    "an unknown notebook": (["nope"], {}, ["no notebook 'nope'", "02_sft"]),
    "an unknown device": (["--device", "tpu"], {}, ["tpu", "xpu, gpu, cpu"]),
    "an xpu that is not there": (["--device", "xpu"], {}, ["/dev/xpu", "paddlepaddle-xpu>=3.3.0,<=3.3.1", "modprobe kunlun"]),
    "a gpu that is not there": (["--device", "gpu"], {}, ["nvidia-smi", "paddlepaddle-gpu==3.3.1"]),
    "fewer cards expected than none": (["--expect", "-1"], {}, ["--expect"]),
    "no card": (["--cards", "0"], {}, ["--cards"]),
    "a file where the reports go": (["--out", "n.ipynb"], {"n.ipynb": make(GOOD)}, ["n.ipynb", "--out"]),
    "invalid JSON": (["n.ipynb"], {"n.ipynb": '{"cells": [\n'}, ["n.ipynb line 2", "not JSON"]),
    "no parameters cell": (["n.ipynb"], {"n.ipynb": no_parameters()}, ["n.ipynb", "parameters"]),
    "no metadata": (["n.ipynb"], {"n.ipynb": no_metadata()}, ["n.ipynb", "CONTRIBUTING.md"]),
    "metadata that does not fit": (["n.ipynb"], {"n.ipynb": make(GOOD, cards=0)}, ["n.ipynb", "cards"]),
    "a check's name in two notebooks": (
        ["n.ipynb", "m.ipynb"],
        {"n.ipynb": make(GOOD), "m.ipynb": make(GOOD)},
        ["m.ipynb", "n.ipynb", "rename one"],
    ),
    "a folder that holds another run": (
        ["n.ipynb", "--out", "."],
        {"n.ipynb": make(GOOD), "result.json": "{}"},
        ["holds another run", "--out"],
    ),
}


@pytest.mark.parametrize("command", ["run", "soak"])
@pytest.mark.parametrize("name", ["index.html", "junit.xml", "metrics.prom", "run.json", "notebooks", "rounds", "soak.jsonl"])
@pytest.mark.parametrize("kind", ["a file", "a link", "a link to nothing"])
def test_what_lies_in_the_folder_for_reports_is_not_overwritten(xpulab, tmp_path, command, name, kind):
    if command == "run" and name in ("rounds", "soak.jsonl"):
        pytest.skip("no run writes it")
    nbformat.write(make(GOOD), tmp_path / "n.ipynb")
    (tmp_path / "out").mkdir()
    (tmp_path / "mine").mkdir()
    place = tmp_path / "out" / name
    if kind == "a file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / ("mine" if kind == "a link" else "nowhere"))
    before = sorted(tmp_path.rglob("*"))
    done = xpulab(command, "n.ipynb", "--check", "demo.good", "--device", "cpu", "--out", "out")
    assert (done.exit_code, f"there is {name} already" in done.stderr) == (2, True), done.stderr
    assert sorted(tmp_path.rglob("*")) == before and (kind != "a file" or place.read_text() == "mine")


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


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nope", ["no model 'nope'", "give a folder with config.json and weights, or one of smollm2-135m"]),
        ("empty", ["empty", "has no config.json", "give the folder that holds it"]),
    ],
)
def test_what_is_no_model_is_one_line_and_nothing_is_kept(model, said, xpulab, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    done = xpulab("model", str(tmp_path / model) if model == "empty" else model)
    assert (done.exit_code, done.stdout) == (2, ""), done.stdout + done.stderr
    assert done.stderr.startswith("xpulab: ") and len(done.stderr.splitlines()) == 1
    assert [part for part in said if part not in done.stderr] == []
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
