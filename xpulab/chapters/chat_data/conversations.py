"""The conversations of chapter 20: questions and answers of chapter 02, one to three in a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xpulab.chapters.shared import models

BRIEF = {"role": "system", "content": "Answer in one sentence."}


def conversations(count: int, seed: int) -> list[list[dict[str, str]]]:
    """So many different conversations, each a list of OpenAI's messages; every third one begins with a system turn."""
    rows, chance = models.instructions("train"), np.random.default_rng(seed)
    found: list[list[dict[str, str]]] = []
    while len(found) < count:
        number = len(found)
        turns = [BRIEF] if number % 3 == 0 else []
        for row in chance.choice(len(rows), size=1 + number % 3, replace=False):
            turns.append({"role": "user", "content": rows[row]["question"]})
            turns.append({"role": "assistant", "content": rows[row]["answer"]})
        if turns not in found:
            found.append(turns)
    return found


def as_sharegpt(turns: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """OpenAI's messages as ShareGPT's."""
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    return [{"from": names[turn["role"]], "value": turn["content"]} for turn in turns]


def write(path: Path, rows: Iterable[Any]) -> Path:
    """Write a JSON Lines file; returns its path."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
