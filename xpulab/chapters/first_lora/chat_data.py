"""Questions and answers for a chat model: read from a file, and checked against the model's context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xpulab import files
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
        text = chat_prompt(tokenizer, row["question"]) + row["answer"] + tokenizer.eos_token
        if (length := len(tokenizer(text, add_special_tokens=False)["input_ids"])) > context:
            raise InputError(
                f"{path} line {number}: is {length} tokens long with the chat template, but the model's context is {context}; "
                "shorten the question or the answer, or remove the line"
            )
    return rows


def chat_prompt(tokenizer: Any, question: str) -> str:
    """What the model reads before it answers: the question in the chat template, up to where the answer begins.

    Raises InputError when the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise InputError(
            f"{tokenizer.name_or_path}: its tokenizer has no chat template; choose a model that was trained to chat (its name "
            'often ends in "Instruct"), or add "chat_template" to tokenizer_config.json'
        )
    return tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
