"""Rows for a chat model are read and encoded so that the loss counts on the answer only, or refused with their line."""

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


def test_the_loss_counts_on_the_answer_and_its_end_with_labels_shifted_by_one(tokenizer):
    encoded = chat_data.encode_chat(tokenizer, ROW)
    ids, labels = encoded["input_ids"], encoded["labels"]
    counted = [place for place, label in enumerate(labels) if label != models.IGNORED]
    assert len(labels) == len(ids) and all(labels[place] == ids[place + 1] for place in counted)
    assert tokenizer.decode([labels[place] for place in counted]) == ROW["answer"] + "<|im_end|>"
    assert counted == list(range(counted[0], len(ids) - 1))
    assert tokenizer.decode(ids[: counted[0] + 1]) == chat_data.chat_prompt(tokenizer, ROW["question"])


def test_a_row_as_long_as_the_context_is_loaded_and_one_token_more_is_refused(rows_in, tokenizer):
    length = len(chat_data.encode_chat(tokenizer, ROW)["input_ids"])
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


# by what is wrong with the tokenizer: its chat template, and what the message says
TEMPLATES = {
    "none": (None, "has no chat template; choose a model that was trained to chat"),
    "no end": ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "does not end an answer in eos_token, '<|im_end|>'"),
    "another question": (
        "{% for m in messages %}{{ messages|length }}{{ m['content'] + eos_token }}{% endfor %}",
        "writes the question otherwise when an answer follows",
    ),
}


@pytest.mark.parametrize("wrong", TEMPLATES)
def test_a_chat_template_that_cannot_be_trained_on_is_refused(wrong, tokenizer):
    template, said = TEMPLATES[wrong]
    tokenizer.chat_template = None
    if template:
        tokenizer.init_chat_template(template)
    with pytest.raises(InputError) as error:
        chat_data.encode_chat(tokenizer, ROW)
    assert said in str(error.value) and "tiny-smollm2" in str(error.value) and "tokenizer_config.json" in str(error.value)
