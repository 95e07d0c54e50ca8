"""What PaddleNLP and transformers both compute on the same weights, and the values of transformers. Needs no framework.

Both sides read the prompts, rows, settings and the initial adapter from here, so a difference comes from their own code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xpulab import files

MODEL = "smollm2-135m"

PROMPTS = (
    "What is the capital of France?",
    "Write a short story about a robot who learns to paint.",
    "用中文介绍一下北京。",
    "Write a Python function that adds two numbers.",
    "Explain in two sentences why the sky is blue.",
)
"""Each is the user's message of a conversation; the chat template adds the rest."""

VOCABULARY_STEP = 768
"""Of each position's logits, every 768th is stored: 64 of 49,152."""

IGNORED = -100
"""The label that both losses ignore."""


@dataclass(frozen=True)
class Settings:
    """How the adapter is trained: LoRA without dropout, AdamW without weight decay, a constant rate, no clipping.

    batch: rows in a step, in the order of the file, which starts again when it ends. seed: of the initial A; B is zero.
    """

    rank: int = 8
    alpha: int = 16
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    batch: int = 4
    steps: int = 20
    seed: int = 0


SETTINGS = Settings()


@dataclass(frozen=True)
class PromptLogits:
    """The logits of one prompt. ids: the prompt's tokens. chosen: [tokens, 64], every VOCABULARY_STEP-th logit."""

    ids: list[int]
    chosen: np.ndarray


@dataclass(frozen=True)
class OtherImplementation:
    """What transformers and peft computed.

    logits: a PromptLogits for each of PROMPTS. losses: [steps]. bounds: the largest difference to accept, by name.
    prepared_sha256: of model.safetensors in the prepared folder.
    """

    logits: list[PromptLogits]
    losses: np.ndarray
    bounds: dict[str, float]
    prepared_sha256: str


def load() -> OtherImplementation:
    """The committed values. Raises InputError when the file does not fit its schema."""
    return from_json(files.load_json(path_of(), files.data("schema", "comparison.schema.json")))


def path_of() -> Path:
    """The file of the committed values."""
    return files.DATA / "comparison" / f"{MODEL}.json"


def from_json(content: Mapping[str, Any]) -> OtherImplementation:
    """The values of a file that fits data/schema/comparison.schema.json."""
    return OtherImplementation(
        logits=[PromptLogits(each["ids"], np.array(each["chosen"])) for each in content["logits"]],
        losses=np.array(content["losses"]),
        bounds={name: each["bound"] for name, each in content["tolerances"].items()},
        prepared_sha256=content["provenance"]["weights"]["prepared_sha256"],
    )


def training_rows() -> list[dict[str, str]]:
    """The rows that the adapter learns, each with "question" and "answer"."""
    return files.load_jsonl(files.data("product", "train.jsonl"), ("question", "answer"))


def digest_of(rows: Sequence[Mapping[str, str]]) -> str:
    """The SHA-256 of rows, whatever the line breaks and spaces of their file."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()


def initial_a(layer: str, inputs: int) -> np.ndarray:
    """The initial A of a layer: [inputs, rank] float32, uniform within 1 / sqrt(inputs), as both libraries draw it.

    layer: its name in either library; only the part from "layers." on counts. numpy keeps this generator's numbers forever.
    """
    name = layer[re.search(r"\blayers\.", layer).start() :]  # type: ignore[union-attr]  # a layer without a number fails
    seed = hashlib.sha256(f"{SETTINGS.seed} {name}".encode()).digest()
    numbers = np.random.RandomState(np.frombuffer(seed, np.uint32))
    return numbers.uniform(-1, 1, (inputs, SETTINGS.rank)).astype(np.float32) / np.float32(np.sqrt(inputs))


def rows_of_step(rows: Sequence[dict[str, str]], step: int) -> list[dict[str, str]]:
    """The rows of a training step, counted from 0."""
    return [rows[number % len(rows)] for number in range(step * SETTINGS.batch, (step + 1) * SETTINGS.batch)]


def padded_right(examples: Sequence[tuple[list[int], list[int]]], pad: int) -> dict[str, np.ndarray]:
    """Examples of (prompt, answer) as arrays [rows, tokens] of int64: input_ids, attention_mask, and labels.

    labels: the answer's tokens at their own places, IGNORED elsewhere.
    """
    length = max(len(prompt) + len(answer) for prompt, answer in examples)
    batch = {
        name: np.full((len(examples), length), value, np.int64)
        for name, value in (("input_ids", pad), ("attention_mask", 0), ("labels", IGNORED))
    }
    for row, (prompt, answer) in enumerate(examples):
        begin, end = len(prompt), len(prompt) + len(answer)
        batch["input_ids"][row, :end] = prompt + answer
        batch["attention_mask"][row, :end] = 1
        batch["labels"][row, begin:end] = answer
    return batch


def summary_of(ids: list[int], logits: np.ndarray) -> PromptLogits:
    """What is kept of a prompt's logits. logits: [tokens, vocabulary]."""
    return PromptLogits([int(each) for each in ids], logits[:, ::VOCABULARY_STEP])
