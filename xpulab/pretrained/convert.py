"""From the layout of torch to that of Paddle: other names, and the weights of linear layers transposed.

Names and transpositions are PaddleNLP's own, from the model class. Every value is kept, to the bit and in its type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from xpulab.errors import InputError
from xpulab.pretrained.paddle_class import compare_shapes, model_class, shapes_of, stored_shapes
from xpulab.pretrained.torch_folder import INDEX, Weight


def convert(files: Mapping[str, Callable[[], Iterable[Weight]]], config: Mapping[str, Any], source: Path, folder: Path) -> None:
    """Write the weights of each file into one of the same name in `folder`, with an index when there are several.

    files: by file name, a function that reads the weights, so that only one file at a time is in memory. source: for messages.
    Raises InputError for a class that PaddleNLP lacks, a weight that the class does not have or has in another shape, and
    weights that are missing: PaddleNLP would initialize them at random.
    """
    targets, where = targets_of(config), dict[str, str]()
    ignored = ("rotary_emb.inv_freq", *(["lm_head.weight"] if config.get("tie_word_embeddings") else []))  # computed or tied
    for name, read in files.items():
        converted = [_converted(weight, targets, config) for weight in read() if not weight.name.endswith(ignored)]
        where.update(dict.fromkeys((weight.name for weight in converted), name))
        _write(converted, folder / name)
    compare_shapes(source, stored_shapes([folder / name for name in files]), shapes_of(config))
    if len(files) > 1:
        size = sum((folder / name).stat().st_size for name in files)
        index = {"metadata": {"total_size": size}, "weight_map": where}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def targets_of(config: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """By the name of a weight in transformers its name in PaddleNLP's class of the same name, and whether it is transposed."""
    model, name = model_class(config), config["architectures"][0]
    mappings = model._get_name_mappings(model.config_class.from_dict(dict(config)))
    if any(each.action not in (None, "transpose") for each in mappings):
        raise InputError(f"{name}: PaddleNLP stores a weight in another shape, which cannot be converted here")
    return {each.source_name: (each.target_name, each.action == "transpose") for each in mappings}


def _converted(weight: Weight, targets: Mapping[str, tuple[str, bool]], config: Mapping[str, Any]) -> Weight:
    if weight.name not in targets:
        raise InputError(f"weight {weight.name!r} is none of {config['architectures'][0]}; is config.json that of this model?")
    name, is_transposed = targets[weight.name]
    return Weight(name, weight.kind, np.ascontiguousarray(weight.values.T if is_transposed else weight.values))


def _write(weights: list[Weight], path: Path) -> None:
    """Write a safetensors file that PaddleNLP reads as its own: metadata "format" is "np"."""
    specs = {}
    for weight in weights:
        values = weight.values
        placed = {"data_ptr": values.ctypes.data, "data_len": values.nbytes}
        specs[weight.name] = safetensors.TensorSpec(dtype=weight.kind, shape=list(values.shape), **placed)
    safetensors.serialize_file(specs, str(path), metadata={"format": "np"})
