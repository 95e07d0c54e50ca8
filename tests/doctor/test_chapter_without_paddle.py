"""Chapter 00 goes on where Paddle or PaddleNLP cannot be imported: what it means, what fixes it, and no check is lost."""

from __future__ import annotations

import json

import nbformat
import pytest

from xpulab import files

pytestmark = pytest.mark.environments

WITHOUT_PADDLE = {
    "hardware.diagnosis",
    "install.versions",
    "install.one-framework",
    "hardware.cards",
    "hardware.identities",
}
"""The checks that compare, or are skipped on the CPU, without Paddle."""


def run(environment, level, chapter="00_environment"):
    """The exit code, the result of the chapter, and its executed cells by their id."""
    notebook = str(files.NOTEBOOKS / f"{chapter}.ipynb")
    done = environment.run("run", notebook, "--device", "cpu", "--level", level, "--out", "out", timeout=300)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    (result,) = json.loads((environment.root / "out/result.json").read_text())["notebooks"]
    executed = nbformat.read(environment.root / f"out/notebooks/{chapter}.ipynb", as_version=4)
    return done.returncode, result, {cell.id: cell for cell in executed.cells}


def shown(cell):
    """The text that the cell shows, and the same as HTML."""
    texts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "\n".join(texts), "\n".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def test_it_goes_on_without_paddle_shows_cause_and_command_in_red_and_loses_no_check(environment):
    environment.remove("paddle/base/libpaddle.so")
    code, result, cells = run(environment, "quick")
    outcomes = {check["name"]: check["outcome"] for check in result["checks"]}
    assert (code, result["outcome"], outcomes["hardware.diagnosis"]) == (1, "failed", "failed")
    assert {name for name, outcome in outcomes.items() if outcome != "missing"} == WITHOUT_PADDLE
    errors = [output.ename for cell in cells.values() for output in cell.get("outputs", []) if "ename" in output]
    assert errors == ["NotebookIsRed"]
    text, red = shown(cells["00-02"])
    assert "import paddle " in text and "\ncause: " in text and "color:#b00020" in red
    assert "fix: " in text and "python -m pip install paddlepaddle==3.3.1 --force-reinstall --no-deps" in text
    assert "not found  Kunlun cards on the PCI bus" in shown(cells["00-04"])[0] and "numpy" in shown(cells["00-10-check"])[0]
    assert shown(cells["00-12"])[0] == "needs paddle: this cell uses paddle"
    assert "cells were left out, since they need paddle, which cannot be imported" in result["reason"]


def test_an_import_that_ends_the_process_does_not_end_the_kernel(environment):
    library = environment.library("libcommon.so")
    library.write_bytes(library.read_bytes()[:300_000])
    _, result, cells = run(environment, "smoke")
    assert "the process was ended by SIGBUS" in shown(cells["00-02"])[0]
    (known,) = result["explanations"]
    assert known["id"] == "import-crashed"
    assert known["remedy"].startswith("python -m pip install paddlepaddle==3.3.1 --force-reinstall --no-deps")
    assert {"hardware.diagnosis", "install.versions"} <= {
        check["name"] for check in result["checks"] if check["outcome"] != "missing"
    }
