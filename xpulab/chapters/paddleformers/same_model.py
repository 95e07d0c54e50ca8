"""One tiny model, its data and its settings, the same for PaddleNLP, its successor, transformers and numpy.

The three packages cannot share an environment, so the values of the first and the third are stored in
data/comparison/successor.json. This module needs numpy and safetensors only; each package brings its own tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from xpulab import files

MODEL = "tiny-llama"
"""The folder below data/models with the config and the tokenizer; the weights are made here."""
PROMPTS = ("What is a rank?", "What is a gradient?", "What does all_reduce do?", "Why is there a seed?")
"""Questions whose last logits are compared."""
SFT = {
    "max_steps": 6,
    "per_device_train_batch_size": 24,
    "learning_rate": 3e-3,
    "lr_scheduler_type": "constant",
    "weight_decay": 0.1,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "seed": 0,
}
"""Settings of the fine-tuning, by the names that both packages have. A batch has all rows: the two order them differently."""
DPO = {**SFT, "max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "weight_decay": 0.0}
ROWS = 24
"""Rows of the fine-tuning: one batch."""
PAIRS = 8
"""Rows of the preference training: one batch."""
IGNORED = -100
"""The label that does not count in a loss."""
_SCALE = 0.2
"""The standard deviation of the weights: with a smaller one the model hardly feels a wrong attention."""

Weights = dict[str, np.ndarray]


def config() -> dict[str, Any]:
    """The content of the model's config.json."""
    return json.loads(files.data("models", MODEL, "config.json").read_text(encoding="utf-8"))


def weights() -> Weights:
    """All weights by the names of transformers, linear ones as [out, in], from a fixed seed."""
    of = config()
    hidden, inner, tokens = of["hidden_size"], of["intermediate_size"], of["vocab_size"]
    keys = hidden // of["num_attention_heads"] * of["num_key_value_heads"]
    attention = {"q_proj": (hidden, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, hidden)}
    feed_forward = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (tokens, hidden)}
    for layer in range(of["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        shapes |= {f"{name}.self_attn.{each}.weight": shape for each, shape in attention.items()}
        shapes |= {f"{name}.mlp.{each}.weight": shape for each, shape in feed_forward.items()}
        shapes |= {f"{name}.{each}.weight": (hidden,) for each in ("input_layernorm", "post_attention_layernorm")}
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (tokens, hidden)}
    drawn = np.random.default_rng(0)
    return {name: (drawn.normal(0, _SCALE, shape) + (len(shape) == 1)).astype("float32") for name, shape in shapes.items()}


def write(folder: Path, stored: Mapping[str, np.ndarray] | None = None) -> Path:
    """Write the model and its tokenizer as transformers stores them; returns the folder. stored: other weights, other names."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in files.data("models", MODEL).iterdir():
        shutil.copyfile(each, folder / each.name)
    content = {name: np.ascontiguousarray(value) for name, value in (stored or weights()).items()}
    save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def digest(stored: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, shapes and bytes, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(stored):
        array = np.ascontiguousarray(stored[name])
        found.update(f"{name} {array.dtype} {list(array.shape)}".encode() + array.tobytes())
    return found.hexdigest()


def instructions() -> list[dict[str, str]]:
    """ROWS rows with "question" and "answer"."""
    return files.load_jsonl(files.data("instructions", "train.jsonl"), ("question", "answer"))[:ROWS]


def preferences() -> list[dict[str, str]]:
    """PAIRS rows with "question", "chosen" and "rejected"."""
    return files.load_jsonl(files.data("preferences", "train.jsonl"), ("question", "chosen", "rejected"))[:PAIRS]


def prompt(question: str) -> str:
    """What the model reads before it answers."""
    return f"Question: {question}\nAnswer:"


def batch(rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, np.ndarray]:
    """Examples as arrays of [rows, length], padded on the right."""
    longest = max(len(row["input_ids"]) for row in rows)
    fills = {"input_ids": 0, "attention_mask": 0, "labels": IGNORED}
    return {
        name: np.array([[*row[name], *[fill] * (longest - len(row[name]))] for row in rows], dtype="int64")
        for name, fill in fills.items()
    }
