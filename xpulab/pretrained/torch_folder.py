"""Read a model's folder as Hugging Face's transformers writes it: config.json and safetensors, whole or in shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from xpulab.errors import InputError

INDEX = "model.safetensors.index.json"

_TYPES = {"F64": ("float64", "f8"), "F32": ("float32", "f4"), "F16": ("float16", "f2"), "BF16": ("bfloat16", "u2")}
"""By type of a file its name, and the type of numpy that holds it."""
_BFLOAT16_EXPONENT = np.uint16(0x7F80)
"""Of NaN and infinity all its bits are set."""
_POINTER, _POINTER_BYTES = b"version https://git-lfs.github.com/spec", 1024
_ADAPTERS = ("adapter_config.json", "lora_config.json")
"""Of PEFT and of PaddleNLP."""
_TIED = ("lm_head.weight", "embed_tokens.weight")
_PICKLES = ("*.bin", "*.pdparams", "*.pt", "*.pth")


@dataclass(frozen=True)
class Weight:
    """A weight of a file.

    name: in the file. kind: "float32", "float16", "bfloat16" or "float64".
    values: the numbers as an array; those of bfloat16 as their 16 bits, because numpy has no such type.
    """

    name: str
    kind: str
    values: np.ndarray


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model's folder. Raises InputError when there is none, or when it does not name a model class."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder}: has no config.json, so it is no model's folder; give the folder that holds it")
    config = read_json(path)
    names = config.get("architectures")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names or [None]):
        raise InputError(f'{path}: names no class; add "architectures", for instance ["LlamaForCausalLM"]')
    return config


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model's folder, in the order of their names.

    Raises InputError when there is none, or only pickles, which can run code, and when one of the index is missing, or is none.
    """
    index = folder / INDEX
    if not index.is_file() and (parts := sorted(path.name for path in folder.glob("*-?????-of-?????.safetensors"))):
        raise InputError(
            f"{folder}: has {len(parts)} of {int(parts[0][-17:-12])} parts of a model, {parts[0]} first, and no index; copy "
            f"{INDEX}, and the parts that are missing, from where they came"
        )
    where = read_json(index).get("weight_map", {}) if index.is_file() else {"": "model.safetensors"}
    if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values() or [None]):
        raise InputError(f"{index}: its weight_map does not name a file for each weight; copy it again")
    names = sorted(set(where.values()))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise InputError(
            f"{folder}: has no {missing[0]}; copy the whole folder again, or save the model with save_pretrained(folder, "
            "safe_serialization=True) where it was made: a pickle can run code when it is loaded"
        )
    others = [name for name in names if not name.endswith(".safetensors")]
    others += [path.name for path in folder.glob("model.safetensors.index.?*.json")]  # PaddleNLP's of several ranks
    if others:
        raise InputError(f"{folder}: {others[0]} would be loaded, and may be a pickle, which can run code; leave it out")
    return [folder / name for name in names]


def require_whole(folder: Path) -> None:
    """Raise InputError where a file is only a pointer of Git LFS, and for a folder with an adapter and no model."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.stat().st_size < _POINTER_BYTES and path.read_bytes().startswith(_POINTER):
            raise InputError(f"{path}: is a pointer of Git LFS, not the file; git lfs install && git lfs pull in this folder")
    for path in filter(Path.is_file, map(folder.joinpath, _ADAPTERS)):
        if not (folder / INDEX).is_file() and not any(folder.glob("model*.safetensors")):
            base = read_json(path).get("base_model_name_or_path") or "a model that it does not name"
            raise InputError(
                f"{folder}: holds an adapter, {path.name}, of {base}, and no model; give the folder of that one, or merge the "
                "adapter into it first"
            )


def require_sound(folder: Path) -> None:
    """Raise InputError where a weight of the folder is NaN or infinite, or config.json ties two weights that differ."""
    config, paths, tied = read_config(folder), weight_files(folder), dict[str, np.ndarray]()
    for path in paths:
        for weight in weights_in(path):
            if config.get("tie_word_embeddings") and weight.name.endswith(_TIED):
                tied[weight.name] = weight.values
    names = sorted(tied)
    if len(names) > 1 and not any(np.array_equal(tied[names[0]], each) for each in (tied[names[1]], tied[names[1]].T)):
        raise InputError(
            f"{folder}: config.json ties {names[0]} and {names[1]}, but they differ, and one would be lost; write "
            '"tie_word_embeddings": false into config.json, or leave out the one that is not trained'
        )


def has_weights(folder: Path) -> bool:
    """Whether the folder holds weights of any kind, also those that are refused; without any it is only a config."""
    return (folder / INDEX).is_file() or any(path for pattern in ("*.safetensors", *_PICKLES) for path in folder.glob(pattern))


def header_of(path: Path) -> tuple[str | None, dict[str, tuple[int, ...]]]:
    """The format that the metadata of a safetensors file name, if any, and the shapes of its weights by name.

    Raises InputError when the file is damaged.
    """
    try:
        with safetensors.safe_open(path, framework="np") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - it is no dict
            return (file.metadata() or {}).get("format"), shapes
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read as safetensors: {error}; copy it again") from error


def weights_in(path: Path) -> Iterator[Weight]:
    """The weights of one safetensors file.

    Raises InputError when it is damaged, and for a weight of another type than a float, or that is NaN or infinite.
    """
    header_of(path)
    for name, tensor in safetensors.deserialize(path.read_bytes()):
        if tensor["dtype"] not in _TYPES:
            raise InputError(f"{path}: {name} is of type {tensor['dtype']}; only {', '.join(_TYPES)} can be converted")
        kind, held = _TYPES[tensor["dtype"]]
        values = np.frombuffer(tensor["data"], dtype=held).reshape(tensor["shape"])
        finite = (values & _BFLOAT16_EXPONENT) != _BFLOAT16_EXPONENT if kind == "bfloat16" else np.isfinite(values)
        if not finite.all():
            raise InputError(
                f"{path}: {finite.size - finite.sum():,} of {finite.size:,} numbers of {name} are NaN or infinite; take an "
                "earlier checkpoint, or copy the file again"
            )
        yield Weight(name, kind, values)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises InputError when it cannot be read, with the line when it is not JSON."""
    try:
        if isinstance(value := json.loads(path.read_text(encoding="utf-8", errors="replace")), dict):
            return value
        raise ValueError(f"it is a {type(value).__name__}")
    except (ValueError, RecursionError) as error:
        where = f"{path} line {getattr(error, 'lineno', 1)}"
        raise InputError(f"{where}: is not JSON, or no object: {error}; copy it again") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; copy it again") from error
