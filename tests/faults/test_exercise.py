"""Exercises: a fault that a reader is to find turns checks red, and nothing that is shown before the answer names it."""

from __future__ import annotations

import re
import sys

import pytest
from typer.testing import CliRunner

from xpulab import child, cli, files
from xpulab.faults import exercise

SECONDS = 120


def xpulab(*arguments):
    return child.run([sys.executable, "-m", "xpulab", "exercise", *arguments], SECONDS, cwd=files.ROOT)


def test_each_notebook_names_its_exercise_and_no_other():
    known = {each.chapter for each in exercise.exercises()}
    for notebook in sorted(files.NOTEBOOKS.glob("*.ipynb")):
        named = set(re.findall(r"xpulab exercise ([a-z_]+)", notebook.read_text(encoding="utf-8")))
        assert named == {notebook.stem[3:]} & known, notebook.stem


@pytest.mark.notebooks
def test_a_reader_sees_red_checks_and_not_the_answer(tmp_path):
    (asked,) = [each for each in exercise.exercises() if each.chapter == "lora"]
    ran = xpulab("3", "--out", str(tmp_path / "new"))
    assert ran.status == 0, ran.errors
    assert all(f"failed {check}" in ran.output for check in asked.fault.detected_by)
    assert "xpulab exercise lora --answer" in ran.output and "03_lora.ipynb" in ran.output
    assert asked.fault.name not in ran.output and asked.fault.what not in ran.output
    assert asked.fault.name not in (tmp_path / "new" / "notebooks" / "03_lora.ipynb").read_text(encoding="utf-8")


def test_the_answer_says_what_is_broken_and_which_checks_see_it():
    (asked,) = [each for each in exercise.exercises() if each.chapter == "lora"]
    told = CliRunner().invoke(cli.app, ["exercise", "lora", "--answer"])
    assert told.exit_code == 0, told.output
    assert all(part in told.stdout for part in (asked.fault.what, asked.answer, *asked.fault.detected_by))


def test_an_unknown_exercise_is_an_error_that_names_those_that_exist():
    told = CliRunner().invoke(cli.app, ["exercise", "nope"])
    assert told.exit_code == 2 and "'nope'" in told.stderr and "lora" in told.stderr
