"""The weights of a model's folder, as PaddleNLP and as torch hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xpulab.pretrained import convert, torch_folder
from xpulab.pretrained.torch_folder import Weight


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    """The weights of a folder's safetensors by name, in float32."""
    every = (each for path in torch_folder.weight_files(folder) for each in torch_folder.weights_in(path))
    return {each.name: _as_float32(each) for each in every}


def transposed(folder: Path) -> dict[str, np.ndarray]:
    """The weights of a folder of PaddleNLP by their names in transformers and in torch's layout; of tied ones the first."""
    config = torch_folder.read_config(folder)
    names = {new: (old, turned) for old, (new, turned) in convert.targets_of(config).items()}
    found = {}
    for name, values in weights_of(folder).items():
        if not (config.get("tie_word_embeddings") and name == "lm_head.weight"):
            old, turned = names[name]
            found[old] = values.T if turned else values
    return found


def _as_float32(weight: Weight) -> np.ndarray:
    if weight.kind == "bfloat16":
        return (weight.values.astype(np.uint32) << 16).view(np.float32)
    return weight.values.astype(np.float32)
