"""The files that a reader takes home from 21_evaluation: they judge a model without xpulab, and say what another one lost."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from xpulab import files
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The scripts, the model that knows the terms, and the questions about them."""
    folder = tmp_path_factory.mktemp("evaluation")
    for script in ("evaluate", "chat_data"):
        shutil.copyfile(take_home.script_path(script), folder / f"{script}.py")
    shutil.copytree(files.DATA / "models" / "tiny-qwen2-sft", folder / "model")
    shutil.copyfile(files.data("regression", "terms.jsonl"), folder / "questions.jsonl")
    return folder


def test_a_model_is_judged_and_what_it_lost_is_named(folder, as_a_reader):
    command = [sys.executable, "evaluate.py", "model", "questions.jsonl"]
    assert "right: 50 of 50; 95 % interval 93% to 100%" in as_a_reader([*command, "--save", "before.json"], folder)
    rows = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    spoiled = [{**row, "rule": "exact", "expected": "?"} if number < 6 else row for number, row in enumerate(rows)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in spoiled))
    said = as_a_reader([*command, "--compare", "before.json"], folder)
    assert "lost 6, gained 0; by chance with probability 0.031" in said
    assert f"  {rows[0]['question']}  {rows[0]['expected']}\n" in said
