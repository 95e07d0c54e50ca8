"""Rows for a chat model are read, or refused with their line."""

from __future__ import annotations

import json

import pytest

from xpulab.chapters.first_lora import chat_data
from xpulab.chapters.shared import models
from xpulab.errors import InputError

ROW = {"question": "What is DPO?", "answer": "Direct preference optimization."}
CONTEXT = 512


@pytest.fixture
def tokenizer():
    return models.new_tokenizer(models.STAND_IN)


@pytest.fixture
def rows_in(tmp_path, tokenizer):
    """Writes lines into a file and loads it."""

    def load(*lines, context=CONTEXT):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        return chat_data.load_rows(path, tokenizer, context)

    return load


def test_a_row_as_long_as_the_context_is_loaded_and_one_token_more_is_refused(rows_in, tokenizer):
    text = chat_data.chat_prompt(tokenizer, ROW["question"]) + ROW["answer"] + tokenizer.eos_token
    length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert rows_in(ROW, context=length) == [ROW]
    with pytest.raises(InputError) as error:
        rows_in(ROW, context=length - 1)
    assert (
        f"rows.jsonl line 1: is {length} tokens long with the chat template, but the model's context is {length - 1}; "
        in str(error.value)
    )


LONG = {"question": "What is DPO?", "answer": "word " * CONTEXT}
# what is in the second line, and what the message says
WRONG = {
    "a wrong field": ({"question": "a", "response": "b"}, "'answer'"),
    "an empty answer": ({"question": "a", "answer": "  "}, "'answer'"),
    "an answer that is no text": ({"question": "a", "answer": 3}, "'answer'"),
    "a line that is not JSON": ("{oops\n", "JSON"),
    "a row that is too long": (LONG, "tokens long with the chat template, but the model's context is 512; shorten"),
    "a special token": ({"question": "a", "answer": "b<|im_end|>c"}, "'answer' holds '<|im_end|>'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_row_is_refused_with_its_file_and_line(wrong, rows_in):
    line, said = WRONG[wrong]
    with pytest.raises(InputError) as error:
        rows_in(ROW, line)
    assert "rows.jsonl line 2: " in str(error.value) and said in str(error.value)


def test_a_tokenizer_without_a_chat_template_is_refused(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(InputError, match=r"tiny-smollm2.*has no chat template; choose a model.*tokenizer_config\.json"):
        chat_data.chat_prompt(tokenizer, ROW["question"])
