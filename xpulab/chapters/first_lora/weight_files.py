"""The weights in a model's files: read them to the bit, compare them by digest, round them to bfloat16 as a file must.

Independent of PaddleNLP's loading, which chapter 01 compares with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import safetensors
from ml_dtypes import bfloat16
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM

from xpulab.chapters.shared.models import Chosen
from xpulab.chapters.shared.resources import use_all_cores
from xpulab.pretrained import torch_folder


def with_weights(chosen: Chosen, scratch: str) -> str:
    """The model's folder; for a model that has only a config, a folder below `scratch` with random weights and that config.

    A model with its own weights is large: from here on, matrix products use all cores.
    """
    if chosen.is_real:
        use_all_cores()
        return chosen.folder
    folder = str(Path(scratch) / "stand-in")
    paddle.seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(chosen.folder), dtype="float32")
    network.save_pretrained(folder, safe_serialization=True)
    return folder


def types_in(folder: str) -> set[str]:
    """The types that the safetensors files of a folder state: "F32", "BF16", ..."""
    return {tensor["dtype"] for _, tensor in _tensors_in(folder)}


def digests_in(folder: str, dtype: str) -> dict[str, str]:
    """A digest of each weight in the files of a folder, after it was loaded as `dtype`: "float32" or "bfloat16"."""
    stored = {name: _bits(tensor) for name, tensor in _tensors_in(folder)}
    if dtype == "bfloat16":
        stored = {
            name: value if value.dtype == np.uint16 else value.astype(bfloat16).view(np.uint16)
            for name, value in stored.items()
        }
    return {name: _digest(value) for name, value in stored.items()}


def digests(weights: Mapping[str, Any]) -> dict[str, str]:
    """A digest of each tensor's bits, by name. Paddle gives bfloat16 to numpy as its 16 bits."""
    return {name: _digest(value.numpy()) for name, value in weights.items()}


def _tensors_in(folder: str) -> list[tuple[str, dict[str, Any]]]:
    paths = torch_folder.weight_files(Path(folder))
    return [pair for path in paths for pair in safetensors.deserialize(path.read_bytes())]


def _bits(tensor: Mapping[str, Any]) -> np.ndarray:
    """float32 as it is, numbers of two bytes as their 16 bits."""
    kind = np.float32 if tensor["dtype"] == "F32" else np.uint16
    return np.frombuffer(tensor["data"], dtype=kind).reshape(tensor["shape"])


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()[:16]
