"""data/take_home/chat_data.py: what is read, what counts, what is tokenized once, and packed rows that equal single ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from xpulab import files
from xpulab.chapters.shared import models, take_home

pytestmark = pytest.mark.integration

chat_data = take_home.load_script("chat_data")
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a rank?"},
    {"role": "assistant", "content": "One process."},
    {"role": "user", "content": "And a card?"},
    {"role": "assistant", "content": "A device."},
]
CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is a rank?<|im_end|>\n<|im_start|>assistant\nOne process."
    "<|im_end|>\n<|im_start|>user\nAnd a card?<|im_end|>\n<|im_start|>assistant\nA device.<|im_end|>"
)
NAMES = {"system": "system", "user": "human", "assistant": "gpt"}


@pytest.fixture(scope="module")
def chat():
    return models.new_tokenizer("tiny-smollm2")


def written(folder, *rows):
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def text_of(tokens, labels):
    return tokens.decode([label for label in labels if label != chat_data.IGNORED])


@pytest.mark.parametrize(
    "row",
    [
        {"messages": TURNS},
        {"system": "Be brief.", "messages": TURNS[1:]},
        {"conversations": [{"from": NAMES[turn["role"]], "value": turn["content"]} for turn in TURNS]},
    ],
)
def test_of_several_turns_only_the_answers_count(tmp_path, chat, row):
    (example,) = chat_data.load(written(tmp_path, row), chat, 512, tmp_path / "tokens")
    assert chat.decode(example["input_ids"]) == CHATML
    assert text_of(chat, example["labels"]) == "One process.<|im_end|>A device.<|im_end|>"


def test_a_message_of_weight_0_does_not_count(tmp_path, chat):
    row = {"messages": [*TURNS[:2], {**TURNS[2], "weight": 0}, *TURNS[3:]]}
    (example,) = chat_data.load(written(tmp_path, row), chat, 512, tmp_path / "tokens")
    assert chat.decode(example["input_ids"]) == CHATML
    assert text_of(chat, example["labels"]) == "A device.<|im_end|>"


@pytest.mark.parametrize("question", ["text", "turns", "whole conversations"])
def test_of_preferences_the_last_answers_are_compared(tmp_path, chat, question):
    row = {"chosen": "A device.", "rejected": "It is a device."}
    if question == "whole conversations":
        row = {name: [*TURNS[:4], {"role": "assistant", "content": text}] for name, text in row.items()}
    else:
        row["question"] = TURNS[:4] if question == "turns" else TURNS[3]["content"]
    (pair,) = chat_data.load_pairs(written(tmp_path, row), chat, 512, 256, tmp_path / "tokens")
    assert {name: chat.decode(pair[name]) for name in ("chosen", "rejected")} == {
        "chosen": "A device.<|im_end|>",
        "rejected": "It is a device.<|im_end|>",
    }
    assert chat.decode(pair["prompt"]).endswith("And a card?<|im_end|>\n<|im_start|>assistant\n")
    assert ("One process." in chat.decode(pair["prompt"])) == (question != "text")
    assert pair == chat_data.encode_pair(row, chat)


def test_longer_pairs_are_left_out_or_cut_and_counted(tmp_path, chat):
    rows = [{"question": "Why? " * count, "chosen": "Yes. " * 20, "rejected": "No. " * count} for count in (1, 60)]
    path = written(tmp_path, *rows)
    left, cut = (chat_data.load_pairs(path, chat, 150, 60, tmp_path / "tokens", longer) for longer in ("leave out", "cut"))
    assert (left.counts["kept"], left.counts["left_out"], cut.counts["kept"], cut.counts["cut"]) == (1, 1, 2, 1)
    whole, short = chat_data.encode_pair(rows[1], chat), cut[1]
    assert (len(short["prompt"]), sum(map(len, short.values()))) == (60, 150)
    assert short["prompt"] == whole["prompt"][-60:] and short["rejected"] == whole["rejected"][: len(short["rejected"])]


@pytest.mark.parametrize("model", ["tiny-smollm2", "tiny-qwen2"])
def test_the_examples_are_those_of_the_lessons(tmp_path, model):
    tokenizer, rows = models.new_tokenizer(model), models.instructions("train")
    read = chat_data.load(written(tmp_path, *rows), tokenizer, 512, tmp_path / "tokens")
    wanted = [models.encode(tokenizer, row) for row in rows]
    assert [each["input_ids"] for each in read] == [each["input_ids"] for each in wanted]
    assert [each["labels"] for each in read] == [each["labels"] for each in wanted]


def test_longer_examples_are_left_out_or_cut_and_counted(tmp_path, chat):
    rows = [{"question": "Why?", "answer": "Because. " * count} for count in (1, 2, 200)]
    path = written(tmp_path, *rows)
    left = chat_data.load(path, chat, 100, tmp_path / "tokens")
    cut = chat_data.load(path, chat, 100, tmp_path / "tokens", "cut")
    assert [len(each["input_ids"]) <= 100 for each in cut] == [True] * 3
    assert (len(left), left.counts["left_out"], left.counts["cut"]) == (2, 1, 0)
    assert (len(cut), cut.counts["left_out"], cut.counts["cut"]) == (3, 0, 1)
    assert cut.counts["tokens"] == left.counts["tokens"] + 100
    with pytest.raises(chat_data.DataError, match=r"none of 3 rows is left; raise max_length \(5\)"):
        chat_data.load(path, chat, 5, tmp_path / "tokens")


def test_what_is_wrong_is_named_with_its_line(tmp_path, chat):
    cases = {
        "{": "line 2: not JSON in UTF-8",
        "[]": "line 2: is a list, no object",
        '{"text": "a"}': "line 2: its fields .text. are no format",
        '{"messages": [{"role": "bot", "content": "a"}]}': "has the role 'bot'",
        '{"question": "a", "chosen": "b", "rejected": "c"}': "rows before it",
    }
    preferences = {"chosen": TURNS, "rejected": TURNS[3:]}
    with pytest.raises(chat_data.DataError, match="must be there, and the same"):
        chat_data.load_pairs(written(tmp_path, preferences), chat, 512, 256, tmp_path / "of pairs")
    for line, message in cases.items():
        path = written(tmp_path, {"messages": TURNS})
        path.write_text(path.read_text() + line + "\n")
        with pytest.raises(chat_data.DataError, match=message):
            chat_data.load(path, chat, 512, tmp_path / "tokens")
        assert sorted(each.name for each in (tmp_path / "tokens").iterdir()) == ["train.lock"]


def test_a_file_is_tokenized_once_and_anew_when_it_changes(tmp_path, chat, monkeypatch):
    calls, real = [], chat_data._tokenize
    monkeypatch.setattr(chat_data, "_tokenize", lambda *given: (calls.append(1), real(*given)))
    path = written(tmp_path, {"messages": TURNS})
    for _ in range(2):
        assert len(chat_data.load(path, chat, 512, tmp_path / "tokens")) == 1
    assert len(calls) == 1
    written(tmp_path, {"messages": TURNS}, {"messages": TURNS[1:]})
    assert len(chat_data.load(path, chat, 512, tmp_path / "tokens")) == 2
    chat_data.load(path, chat, 128, tmp_path / "tokens")
    assert len(calls) == 3


@pytest.mark.parametrize("first_fit", [False, True])
def test_packed_rows_have_the_losses_of_single_ones(tmp_path, first_fit):
    import paddle

    tokenizer, model = models.new_tokenizer("tiny-qwen2"), models.new_model("tiny-qwen2-sft", 0)
    model.eval()
    rows = chat_data.load(written(tmp_path, *models.instructions("train")), tokenizer, 128, tmp_path / "tokens")
    packed, collate = chat_data.Packed(rows, 128, first_fit), chat_data.Collator(tokenizer, multiple_of=8)

    def losses(examples):
        batch = collate(examples)
        labels = batch.pop("labels")
        logits, *_ = model(**batch, return_dict=False)
        each = paddle.nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=chat_data.IGNORED)
        return each.numpy().reshape(labels.shape)[labels.numpy() != chat_data.IGNORED]

    assert len(packed) < len(rows) / 3
    assert max(sum(row["examples"]) for row in packed) <= 128
    single = np.sort(np.concatenate([losses([row]) for row in rows]))
    both = np.sort(losses([packed[index] for index in range(len(packed))]))
    np.testing.assert_allclose(both, single, atol=2e-5)


def test_first_fit_leaves_less_room_empty():
    rng = random.Random(0)
    lengths = [rng.randint(1, 400) for _ in range(3000)]
    rows = type("Rows", (), {"length": lambda self, index: lengths[index], "__len__": lambda self: len(lengths)})()
    in_order, fitted = (chat_data.Packed(rows, 512, first_fit) for first_fit in (False, True))
    assert sorted(in_order.order) == sorted(fitted.order) == list(range(3000))
    assert list(in_order.order) == list(range(3000))
    assert len(fitted) <= 1.05 * sum(lengths) / 512 < len(in_order)


LARGE = """
import resource, sys
sys.path.insert(0, {folder!r})
import chat_data
class Words:
    chat_template, eos_token, eos_token_id, pad_token_id = None, "#", 3, 0
    def __call__(self, text, add_special_tokens=True): return {{"input_ids": [len(word) for word in text.split()]}}
    def __len__(self): return 100
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = chat_data.load({path!r}, Words(), 4096, {cache!r})
print(len(rows), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def rows_and_growth(folder, size):
    """How many rows a new file of so many bytes has, how many were read, and by how many MiB the reader's memory grew."""
    line = json.dumps({"messages": [{**turn, "content": turn["content"] * 40} for turn in TURNS]}) + "\n"
    path, count = folder / "a.jsonl", size // len(line)
    with path.open("w") as file:
        file.writelines(line for _ in range(count))
    code = LARGE.format(folder=str(files.DATA / "take_home"), path=str(path), cache=str(folder / "tokens"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    return count, *map(int, done.stdout.split()[-2:])


def test_memory_does_not_grow_with_the_file(tmp_path):
    count, rows, grown = rows_and_growth(tmp_path, 60_000_000)
    assert rows == count
    assert grown < 15, grown  # MiB, of 60


def test_the_files_of_a_folder_are_one_data_set(tmp_path, chat):
    for name, row in {"b.jsonl": TURNS[1:], "a.json": TURNS}.items():
        (tmp_path / "train").mkdir(exist_ok=True)
        (tmp_path / "train" / name).write_text(json.dumps({"messages": row}))
    rows = chat_data.load(tmp_path / "train", chat, 512, tmp_path / "tokens")
    assert [chat.decode(row["input_ids"]) == CHATML for row in rows] == [True, False]
    (tmp_path / "train" / "b.jsonl").write_text("{}")
    with pytest.raises(chat_data.DataError, match=r"train/b.jsonl line 1"):
        chat_data.load(tmp_path / "train", chat, 512, tmp_path / "tokens")
