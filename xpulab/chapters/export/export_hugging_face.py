"""Write a model of PaddleNLP as a folder for Hugging Face's transformers, and read such a folder back.

Names and transpositions are PaddleNLP's own, from the model class; see xpulab.pretrained.convert for the other direction.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from xpulab.messages import N_
from xpulab.pretrained import torch_folder
from xpulab.pretrained.convert import PaddleWeight, targets_of

KEPT = (
    "architectures",
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "hidden_act",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
)
"""The entries of a config that both libraries have, with the same meaning; others are PaddleNLP's own."""


def write(folder: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Write config.json and model.safetensors.

    config: PaddleNLP's, as config.to_dict() gives it, with "architectures".
    weights: float32, by the names of PaddleNLP; linear layers as [inputs, outputs].
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: config[name] for name in KEPT if config.get(name) is not None}
    (folder / "config.json").write_text(json.dumps({**kept, "torch_dtype": "float32"}, indent=2) + "\n", encoding="utf-8")
    safetensors.numpy.save_file(to_torch(config, weights), folder / "model.safetensors", metadata={"format": "pt"})


def to_torch(config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights with the names of transformers; linear layers as [outputs, inputs]."""
    return {name: _layout(weights[target.name], target) for name, target in _present(config, weights).items()}


def from_torch(folder: Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The weights of a folder of transformers, by the names of PaddleNLP and in its layout."""
    found = {each.name: each.values for path in torch_folder.weight_files(folder) for each in torch_folder.weights_in(path)}
    return {target.name: _layout(found[name], target) for name, target in targets_of(config).items() if name in found}


def lacks_transformers() -> str:
    """Why transformers cannot read a folder here; empty when it can."""
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    return N_("{missing} not installed", missing=" and ".join(missing)) if missing else ""


def logits_of_transformers(folder: Path, ids: np.ndarray) -> np.ndarray:
    """What transformers computes with the folder for these ids, [rows, tokens]: logits [rows, tokens, vocabulary]."""
    import torch  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM  # type: ignore[import-not-found]

    network = AutoModelForCausalLM.from_pretrained(str(folder), torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return network(torch.from_numpy(ids)).logits.numpy()


def _present(config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> dict[str, PaddleWeight]:
    return {name: target for name, target in targets_of(config).items() if target.name in weights}


def _layout(values: np.ndarray, target: PaddleWeight) -> np.ndarray:
    return np.ascontiguousarray(values.T) if target.transposed else values
