"""What the chapter compares with the packages that it cannot import: their numbers, their layouts, their names of options.

Also the parts of the comparison that a reader does not need to see: a backward pass, files that do not fit.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from safetensors.numpy import load_file

from xpulab import files
from xpulab.chapters.paddleformers import same_model, successor
from xpulab.chapters.shared.states import digests
from xpulab.errors import InputError

CLOSED_FORM = {
    "sigmoid": float(np.log(2)),
    "hinge": 1.0,
    "ipo": 25.0,
    "kto_pair": 0.5,
    "sppo_hard": 50.0,
    "nca_pair": 2 * float(np.log(2)),
    "dpop": float(np.log(2)),
}
"""By loss type the loss before the first step, where policy and reference are the same model, for beta = 0.1."""
RENAMED = {
    "tensor_parallel_degree": ("tensor_model_parallel_size",),
    "pipeline_parallel_degree": ("pipeline_model_parallel_size",),
    "sharding_parallel_degree": ("sharding_parallel_size",),
    "sep_parallel_degree": ("sep_parallel_size",),
    "context_parallel_degree": ("context_parallel_size",),
    "expert_parallel_degree": ("expert_model_parallel_size",),
    "recompute": ("recompute_granularity", "recompute_method", "recompute_num_layers"),
    "unified_checkpoint": ("save_checkpoint_format", "load_checkpoint_format"),
}
"""By PaddleNLP's name of an argument of training those of the successor."""
STILL_THERE = ("unified_checkpoint",)
"""Old names that are still accepted."""
_SECONDS = 300
_NORM, _UP = "model.norm.weight", "model.layers.0.mlp.up_proj.weight"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Numbers:
    """What PaddleNLP and transformers compute on the same weights, from data/comparison/successor.json.

    versions: of the packages, for a reader. paddlenlp_logits, transformers_logits: [questions, vocabulary].
    sft_losses, dpo_losses: of each step. transformers_loss: before the first step. layout: the digest of the weights that
    PaddleNLP's save_pretrained writes. arguments: the names of its TrainingArguments.
    """

    versions: str
    paddlenlp_logits: np.ndarray
    transformers_logits: np.ndarray
    sft_losses: list[float]
    dpo_losses: list[float]
    transformers_loss: float
    layout: str
    arguments: frozenset[str]


def numbers(digest: str) -> Numbers:
    """The stored numbers. Raises InputError when they were computed with other weights than those of this digest."""
    path = files.data("comparison", "successor.json")
    stored = files.load_json(path, files.data("schema", "successor.schema.json"))
    if stored["weights_sha256"] != digest:
        raise InputError(f"{path}: was computed with other weights; data/README.md says how it was made")
    old, other = stored["paddlenlp"], stored["transformers"]
    versions = {**old["provenance"]["versions"], **other["provenance"]["versions"]}
    return Numbers(
        ", ".join(f"{name} {versions[name]}" for name in ("paddlenlp", "transformers", "torch")),
        np.array(old["logits"]),
        np.array(other["logits"]),
        old["sft_losses"],
        old["dpo_losses"],
        other["loss"],
        old["layout"]["sha256"],
        frozenset(old["arguments"]),
    )


def preference_classes() -> tuple[type, type]:
    """DPOConfig and DPOTrainer, which are part of the command line."""
    arguments, trainer = (successor.module(f"cli.train.dpo.{name}") for name in ("dpo_argument", "dpo_trainer"))
    return arguments.DPOConfig, trainer.DPOTrainer


def has_module(path: str) -> bool:
    """Whether the successor has a module of this name, without importing it."""
    return importlib.util.find_spec(f"{successor.NAME}.{path}") is not None


# ------------------------------------------------------------------------------------------------------- layouts of files


def as_paddlenlp_stores(stored: Mapping[str, np.ndarray]) -> Arrays:
    """Weights of transformers by the names and in the layout of PaddleNLP."""
    linear = ("_proj.weight", "lm_head.weight")
    return {
        f"llama.{name[6:]}" if name.startswith("model.") else name: value.T.copy() if name.endswith(linear) else value
        for name, value in stored.items()
    }


def as_transformers_stores(network: Any) -> Arrays:
    """The weights of the successor's model in the layout of transformers: its head is stored so already."""
    values = {name: value.numpy() for name, value in network.state_dict().items()}
    return {name: np.ascontiguousarray(value.T) if name.endswith("_proj.weight") else value for name, value in values.items()}


def read_all(folder: Path) -> Arrays:
    """All tensors of the files of safetensors in a folder."""
    return {name: value for path in sorted(folder.glob("*.safetensors")) for name, value in load_file(path).items()}


def load(folder: Path, **options: Any) -> Any:
    """from_pretrained with options, as the lesson's new_model without them."""
    models = successor.module("transformers")
    config = models.AutoConfig.from_pretrained(str(folder))
    config.fuse_rms_norm = False
    paddle.seed(1)  # of the weights that are not in the file
    return models.AutoModelForCausalLM.from_pretrained(str(folder), config=config, dtype="float32", **options)


def kind(loaded: Any, wanted: np.ndarray) -> str:
    """Of a load: "the model", "another model", or "refused" where it raised. loaded: logits, or the name of an error."""
    if isinstance(loaded, str):
        return "refused"
    return "the model" if np.abs(loaded - wanted).max() < 1e-4 else "another model"


class Damaged:
    """Folders with a model whose file does not fit, and what loading them gives, in the words of `kind`."""

    def __init__(self, folder: Path, start: Path, logits: Callable[[Any], np.ndarray], new_model: Callable[..., Any]) -> None:
        """start: the right folder. logits: of a network. new_model: loads a folder."""
        self._folder, self._logits, self._new = folder, logits, new_model
        self._wanted = logits(new_model(start))
        stored = load_file(start / "model.safetensors")
        without = {name: value for name, value in stored.items() if name != _UP}
        shorter = {**stored, _NORM: stored[_NORM][:32].copy(), _UP: stored[_UP][:64].copy()}
        for name, content in (("whole", stored), ("missing", without), ("other shape", shorter)):
            same_model.write(folder / name, content)

    def loads(self, name: str, **options: Any) -> str:
        """What a load of a folder gives: the lesson's where no options are given."""
        new = load if options else self._new
        return kind(successor.outcome(lambda: self._logits(new(self._folder / name, **options))), self._wanted)

    def after_failure(self) -> str:
        """What a load of the right file gives after one that failed, without the workaround between them."""
        with successor.quiet():
            for folder in ("missing", "whole"):
                try:
                    found: Any = self._logits(self._new(self._folder / folder))
                except Exception as error:  # of any class
                    found = type(error).__name__
        successor.forget_failed_load()
        return kind(found, self._wanted)


def run_script(folder: Path, *arguments: str) -> str:
    """Run the script that is taken home, in its folder; returns what it printed. Raises InputError when it fails."""
    command = [sys.executable, "successor.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise InputError(f"successor.py {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
    return done.stdout


# ------------------------------------------------------------------------------------------------------ of trained models


def frozen(network: Any) -> dict[str, np.ndarray]:
    """Digests of the weights that do not train."""
    return digests({name: value for name, value in network.named_parameters() if value.stop_gradient})


def changed(of: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Digests of which the first one differs."""
    first = next(iter(of))
    return {**of, first: of[first] ^ 1}


def backward(network: Any, batch: Mapping[str, Any]) -> None:
    """A forward and a backward pass of the mean loss over the labels that count; gradients stay at the weights."""
    network.train()
    network.clear_gradients()
    network(**batch)[0].backward()
