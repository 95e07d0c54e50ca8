"""The script that chapter 10 writes: AutoTrainer without xpulab, on one process and on two, with the losses of the lesson."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from xpulab import files
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks

CELLS = nbformat.read(files.NOTEBOOKS / "10_auto_parallel.ipynb", as_version=4).cells
EVERY_SIXTH = slice(5, None, 6)

Train = Callable[..., tuple[list[float], str]]


def config() -> dict[str, object]:
    """The configuration that the chapter writes: a literal, with names of literals of other cells."""
    values, source = {}, "\n".join(cell.source for cell in CELLS if cell.cell_type == "code" and cell.source[:1] != "%")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "config" and isinstance(node.value, ast.Dict):
                pairs = zip(node.value.keys, node.value.values, strict=True)
                return {key.value: values[each.id] if isinstance(each, ast.Name) else each.value for key, each in pairs}
            if isinstance(node.value, ast.Constant):
                values[node.targets[0].id] = node.value.value
    raise AssertionError("the chapter has no configuration")


def losses_of_the_lesson() -> list[float]:
    """Every sixth loss of one process, with three decimals, as the chapter prints them."""
    printed = "".join(output.get("text", "") for cell in CELLS for output in cell.get("outputs", []))
    (line,) = re.findall(r"one process, every sixth loss: (.*)", printed)
    return [float(loss) for loss in line.split()]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder that the chapter writes."""
    take_home.write(tmp_path, script="auto_trainer", config=config(), device="cpu")
    return tmp_path


def losses_in(home: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (home / "trained" / "losses.jsonl").read_text().splitlines()]


@pytest.fixture
def train(home: Path, forked: Callable[..., subprocess.CompletedProcess]) -> Train:
    """train(device, n, options): the losses, and what all ranks wrote, of the script in a folder of its own."""

    def run(device: str, n: int, options: str = "") -> tuple[list[float], str]:
        arguments = ["config.json", "--device", device, *options.split()]
        done = forked("auto_trainer.py", *arguments, cwd=home, n=n, device=device)
        written = "".join(log.read_text(errors="replace") for log in sorted((home / "log").glob("workerlog.*")))
        assert done.returncode == 0, written[-3000:]
        return losses_in(home), written

    return run


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_two_processes_that_cut_the_matrices_have_the_losses_of_the_lesson(train, device):
    losses, written = train(device, 2)
    assert losses[EVERY_SIXTH] == pytest.approx(losses_of_the_lesson(), abs=1e-3)
    for rank in range(2):
        assert f"rank {rank} of 2 holds [32, 16] of a query weight [32, 32], 22464 numbers" in written


def test_one_process_as_a_reader_starts_it_has_the_losses_of_the_lesson(home, as_a_reader):
    as_a_reader(["python", "auto_trainer.py", "config.json", "--device", "cpu"], home)
    losses = losses_in(home)
    assert losses[EVERY_SIXTH] == pytest.approx(losses_of_the_lesson(), abs=1e-3)
    assert losses[-1] < losses[0] / 50
