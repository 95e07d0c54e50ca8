"""Questions and answers for a chat model: read from a file, checked against the model's context, encoded for training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.chapters.shared.models import IGNORED
from xpulab.errors import InputError

FIELDS = ("question", "answer")


def load_rows(path: Path, tokenizer: Any, context: int) -> list[dict[str, str]]:
    """The rows of a JSON Lines file, each with "question" and "answer"; with the chat template each fits into the context.

    context: how many tokens the model reads at most, max_position_embeddings of its config.
    Raises InputError with file, line and remedy for a row with other fields or an empty one, for one that is longer than the
    context, and for one that holds a special token of the tokenizer: the model would read it as the end of a message.
    """
    rows = files.load_jsonl(Path(path), FIELDS)
    for number, row in enumerate(rows, start=1):
        for field in FIELDS:
            if held := [token for token in tokenizer.all_special_tokens if token in row[field]]:
                raise InputError(
                    f"{path} line {number}: {field!r} holds {held[0]!r}, which the model reads as a special token; remove it"
                )
        if (length := len(encode_chat(tokenizer, row)["input_ids"])) > context:
            raise InputError(
                f"{path} line {number}: is {length} tokens long with the chat template, but the model's context is {context}; "
                "shorten the question or the answer, or remove the line"
            )
    return rows


def encode_chat(tokenizer: Any, row: dict[str, str]) -> dict[str, list[int]]:
    """One training example from the chat template: input_ids, attention_mask and labels, of the same length.

    The labels are shifted: each is the next token. Only those of the answer and of the token that ends it are not IGNORED.
    Raises InputError when the tokenizer's chat template cannot be trained on: there is none, it changes the question when an
    answer follows, or it does not end an answer in eos_token.
    """
    asked_text = chat_prompt(tokenizer, row["question"])
    messages = [*_asked(row["question"]), {"role": "assistant", "content": row["answer"]}]
    # Unlike transformers, PaddleNLP begins another answer after the conversation by default.
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    if not text.startswith(asked_text):
        raise _unusable(tokenizer, "writes the question otherwise when an answer follows")
    asked = tokenizer(asked_text, add_special_tokens=False)["input_ids"]
    answered = tokenizer(text.removeprefix(asked_text).rstrip(), add_special_tokens=False)["input_ids"]
    if answered[-1] != tokenizer.eos_token_id:
        raise _unusable(tokenizer, f"does not end an answer in eos_token, {tokenizer.eos_token!r}")
    labels = [*[IGNORED] * (len(asked) - 1), *answered, IGNORED]
    return {"input_ids": asked + answered, "attention_mask": [1] * len(labels), "labels": labels}


def chat_prompt(tokenizer: Any, question: str) -> str:
    """What the model reads before it answers: the question in the chat template, up to where the answer begins.

    Raises InputError when the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise InputError(
            f"{tokenizer.name_or_path}: its tokenizer has no chat template; choose a model that was trained to chat (its name "
            'often ends in "Instruct"), or add "chat_template" to tokenizer_config.json'
        )
    return tokenizer.apply_chat_template(_asked(question), tokenize=False, add_generation_prompt=True)


def _asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def _unusable(tokenizer: Any, what: str) -> InputError:
    return InputError(
        f"{tokenizer.name_or_path}: its chat template {what}; correct chat_template or eos_token in tokenizer_config.json"
    )
