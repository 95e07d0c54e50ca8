"""Examples of a training in the formats that people have, one at a time: what is read, and what the model learns to write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError

LONGEST_LINE = 64 << 20
"""Bytes."""
PAIRS = (("src", "tgt"), ("question", "answer"), ("instruction", "output"), ("prompt", "completion"), ("query", "response"))
"""Fields of rows that hold what is asked and what is answered: each a text, or a list with a text for each turn."""
ROLES = {
    **{"human": "user", "gpt": "assistant", "model": "assistant", "function_call": "assistant", "observation": "tool"},
    **{role: role for role in ("system", "user", "assistant", "tool")},
}
"""By the role of OpenAI's messages and of ShareGPT's conversations the one of chat templates."""


@dataclass(frozen=True)
class Turn:
    """role: "system", "user", "assistant" or "tool". counts: whether the loss counts its tokens."""

    role: str
    text: str
    counts: bool


@dataclass(frozen=True)
class Example:
    """A row. line: its number in the file. format: its fields. texts: one; of chosen and rejected two."""

    line: int
    format: str
    texts: tuple[list[Turn], ...]


def read_examples(path: Path) -> Iterator[Example]:
    """The rows of a JSON Lines file, of which only one is in memory; blank lines are left out.

    Raises InputError, with the line, for what is not JSON or in no format that is known, or in another one than the first row.
    """
    first = ""
    with files.opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not line.strip(b"\xef\xbb\xbf \t\r\n"):
                continue
            at = f"{path} line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
                raise InputError(f"{at}: not JSON in UTF-8: {error}; write one object a line") from error
            if not isinstance(row, dict):
                raise InputError(f"{at}: is a {type(row).__name__}, no object; write one a line: jq -c '.[]' FILE > FILE.jsonl")
            name, texts = _texts(row, at)
            if name != (first := first or name):
                raise InputError(f"{at}: has the fields {name}, and rows before it {first}; write all in one format")
            yield Example(number, name, texts)
    if not first:
        raise InputError(f"{path}: has no row; write one JSON object a line")


def _texts(row: dict[str, Any], at: str) -> tuple[str, tuple[list[Turn], ...]]:
    """The format of a row, and its texts."""
    if {"chosen", "rejected"} <= row.keys():
        asked = next((name for name in ("question", "prompt", "src", "instruction") if name in row), "")
        before = _turns(row[asked], "user", f"{at}: {asked!r}") if asked else []
        texts = []
        for name in ("chosen", "rejected"):
            turns = _turns(row[name], "assistant", f"{at}: {name!r}")
            turns = turns if turns[: len(before)] == before else before + turns
            texts.append([*(replace(turn, counts=False) for turn in turns[:-1]), turns[-1]])  # the last answer is compared
        return "chosen, rejected", tuple(texts)
    for name in ("messages", "conversations"):
        if name in row:
            return name, (_turns(row.get("system") or [], "system", at) + _turns(row[name], "user", f"{at}: {name!r}"),)
    for asked, answered in PAIRS:
        if {asked, answered} <= row.keys():
            sides = [row[name] if isinstance(row[name], list) else [row[name]] for name in (asked, answered)]
            if len(sides[0]) != len(sides[1]):
                raise InputError(
                    f"{at}: {asked!r} has {len(sides[0])} turns, {answered!r} {len(sides[1])}; write as many of each"
                )
            if asked == "instruction" and row.get("input"):
                sides[0] = [f"{row[asked]}\n{row['input']}"]
            turns = []
            for question, answer in zip(*sides, strict=True):
                turns += [_turn("user", question, f"{at}: {asked!r}"), _turn("assistant", answer, f"{at}: {answered!r}")]
            return f"{asked}, {answered}", (turns,)
    known = "; ".join(["messages", "conversations", "chosen, rejected", *map(", ".join, PAIRS)])
    raise InputError(f"{at}: its fields ({', '.join(row)}) are no format that is known; rename them to one of: {known}")


def _turns(value: Any, role: str, at: str) -> list[Turn]:
    """A text of that role, or messages: OpenAI's, with "weight": 0 where an answer does not count, or ShareGPT's."""
    if isinstance(value, str):
        return [_turn(role, value, at)]
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InputError(f'{at} is no list of messages; write [{{"role": "user", "content": "..."}}, ...]')
    turns = []
    for message in value:
        said, text = message.get("role", message.get("from")), message.get("content", message.get("value"))
        if said not in ROLES:
            raise InputError(f"{at} has the role {said!r}; choose one of {', '.join(ROLES)}")
        if isinstance(text, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in text):
            text = "".join(part["text"] for part in text)
        text = json.dumps(message["tool_calls"]) if text is None and "tool_calls" in message else text
        turns.append(_turn(ROLES[said], text, at, message.get("weight", 1) != 0))
    return turns


def _turn(role: str, text: Any, at: str, counts: bool = True) -> Turn:
    if not isinstance(text, str):
        raise InputError(f"{at} has a {type(text).__name__} in the place of a text; only texts can be trained on here")
    return Turn(role, text, counts and role == "assistant")
