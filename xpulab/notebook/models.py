"""Tiny models, their tokenizer, instructions and preferences from data/; the same functions work for any other model.

The name of a model is a folder below data/models ("tiny-qwen2"), any local folder, or a name that PaddleNLP knows. A folder
with only a config gives a model with random weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from xpulab import files
from xpulab.errors import InputError

IGNORED = -100
"""The label that every loss of PaddleNLP ignores."""


def instructions(split: str) -> list[dict[str, str]]:
    """The rows of data/instructions/<split>.jsonl, each with "question" and "answer"."""
    return files.load_jsonl(files.data("instructions", f"{split}.jsonl"), ("question", "answer"))


def preferences(split: str) -> list[dict[str, str]]:
    """The rows of data/preferences/<split>.jsonl, each with "question" and the answers "chosen" and "rejected"."""
    return files.load_jsonl(files.data("preferences", f"{split}.jsonl"), ("question", "chosen", "rejected"))


def folder_of(model: str) -> str:
    """The folder of a model in data/models; any other name unchanged, for PaddleNLP to find."""
    folder = files.DATA / "models" / model
    return str(folder) if folder.is_dir() else model


def has_weights(model: str) -> bool:
    """Whether the model comes with weights; a folder that holds only a config does not."""
    source = Path(folder_of(model))
    return not source.is_dir() or any(source.glob("*.safetensors")) or any(source.glob("*.pdparams"))


def new_model(model: str, seed: int) -> Any:
    """The model in single precision on the device in use, with its weights, or with random ones from `seed` if it has none.

    Raises InputError when PaddleNLP cannot load the model.
    """
    source = folder_of(model)
    paddle.seed(seed)
    if not has_weights(model):
        return AutoModelForCausalLM.from_config(_load(AutoConfig, source), dtype="float32")
    return _load(AutoModelForCausalLM, source, dtype="float32")


def new_tokenizer(model: str) -> Any:
    """The model's tokenizer. It pads on the left, as generation needs. Raises InputError when there is none."""
    return _load(AutoTokenizer, folder_of(model), padding_side="left")


def prompt(question: str) -> str:
    """The prompt of a question: the text that the model reads before it answers."""
    return f"Question: {question}\nAnswer:"


def encode(tokenizer: Any, row: dict[str, str]) -> dict[str, list[int]]:
    """One training example: input_ids, attention_mask and labels, of the same length.

    The labels are shifted: each is the next token. Those within the prompt are IGNORED.
    """
    asked = tokenizer(prompt(row["question"]))["input_ids"]
    answered = [*tokenizer(" " + row["answer"], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    labels = [*[IGNORED] * (len(asked) - 1), *answered, IGNORED]
    return {"input_ids": asked + answered, "attention_mask": [1] * len(labels), "labels": labels}


class Examples(paddle.io.Dataset):
    """Rows of instructions, encoded for training."""

    def __init__(self, tokenizer: Any, rows: Sequence[dict[str, str]]) -> None:
        super().__init__()
        self._encoded = [encode(tokenizer, row) for row in rows]

    def __len__(self) -> int:
        return len(self._encoded)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return self._encoded[index]


@paddle.no_grad()
def answers(network: Any, tokenizer: Any, rows: Sequence[dict[str, str]], at_most: int = 24) -> list[str]:
    """The network's answer to the question of each row: greedy search, at most `at_most` tokens."""
    network.eval()
    asked = [prompt(row["question"]) for row in rows]
    batch = tokenizer(asked, padding=True, return_attention_mask=True, return_tensors="pd")
    tokens, _ = network.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=at_most,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return [tokenizer.decode(line, skip_special_tokens=True).strip() for line in tokens.tolist()]


def _load(kind: Any, source: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(
            f"model {source!r}: {kind.__name__} cannot load it: {error}. Give a folder below data/models, a local folder "
            "with config.json and weights, or a name that PaddleNLP knows"
        ) from error
