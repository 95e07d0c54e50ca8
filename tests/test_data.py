"""The data that notebooks read: it fits its scripts and itself."""

from __future__ import annotations

import importlib.util
import json

import pytest

from xpulab import files
from xpulab.chapters.shared import models
from xpulab.records import known_issues

SPLITS = {"train": 72, "heldout": 24, "xpu_train": 16, "xpu_heldout": 8}


def rows(split):
    return files.load_jsonl(files.data("instructions", f"{split}.jsonl"), ("question", "answer"))


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_has_its_size_and_no_question_twice(split):
    questions = [row["question"] for row in rows(split)]
    assert len(questions) == len(set(questions)) == SPLITS[split]


@pytest.mark.parametrize(("split", "heldout"), [("train", "heldout"), ("xpu_train", "xpu_heldout")])
def test_no_held_out_question_is_trained_on_but_every_answer_is(split, heldout):
    assert not {row["question"] for row in rows(split)} & {row["question"] for row in rows(heldout)}
    assert {row["answer"] for row in rows(split)} == {row["answer"] for row in rows(heldout)}


@pytest.mark.parametrize(("split", "size"), [("train", 48), ("heldout", 24)])
def test_a_preference_is_the_same_answer_in_two_styles(split, size):
    pairs = models.preferences(split)
    known = {row["answer"] for row in rows("train")}
    assert len({pair["question"] for pair in pairs}) == len(pairs) == size
    assert {pair["chosen"] for pair in pairs} == known
    for pair in pairs:
        assert pair["rejected"] == "It is " + pair["chosen"][0].lower() + pair["chosen"][1:]


def test_no_held_out_question_has_a_preference_to_train_on():
    assert not {row["question"] for row in models.preferences("train")} & {
        row["question"] for row in models.preferences("heldout")
    }


def test_the_tokenizer_script_makes_the_committed_files_again(tmp_path):
    path = files.DATA / "make_tokenizer.py"
    spec = importlib.util.spec_from_file_location("make_tokenizer", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.save(tmp_path)
    for model in ("tiny-qwen2", "tiny-llama", "tiny-qwen2-sft"):
        for made in tmp_path.iterdir():
            assert made.read_bytes() == (files.DATA / "models" / model / made.name).read_bytes(), (model, made.name)


def test_every_known_issue_names_a_check_that_a_notebook_plans(checks_of_the_book):
    assert {issue.check for issue in known_issues.load()} <= checks_of_the_book


@pytest.mark.parametrize("path", sorted(files.DATA.joinpath("schema").glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_is_a_schema(path):
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))
