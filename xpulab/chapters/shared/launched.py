"""Run a training script on several cards, each rank as paddle.distributed.launch would start it, and read what it wrote."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from ml_dtypes import bfloat16
from safetensors.numpy import load_file

from xpulab import files, ranks
from xpulab.chapters.shared import half_types, take_home, workarounds


@dataclass(frozen=True)
class Trained:
    """A finished training.

    losses: of each step. heldout: the loss on the held-out rows at the end; nan of a script that prints none.
    folder: what the script wrote. held: what each rank held, see `_held`.
    """

    losses: list[float]
    heldout: float
    folder: Path
    held: list[dict[str, Any]]

    def weights(self) -> dict[str, np.ndarray]:
        """The saved model by the names of its weights, joined from the parts of all ranks; of LoRA the adapter."""
        of_adapters = ("peft_model*.safetensors", "lora_model_state.pdparams")
        return _arrays(self.folder, "model*.safetensors", "model_state*.pdparams", *of_adapters)

    def moments(self) -> dict[str, np.ndarray]:
        """AdamW's first moments by the names of their weights, from the last checkpoint, joined from the parts of all ranks."""
        last = max(self.folder.glob("checkpoint-*"), key=lambda each: int(each.name.rpartition("-")[2]))
        held = _arrays(last, "optimizer*.safetensors")
        return {name.partition("/")[0]: value for name, value in held.items() if "/moment1" in name}


def train(script: str, config: str | Path, cards: int, device: str, **arguments: Any) -> Trained:
    """Train with a script of data/take_home on so many cards. arguments: replace those of the file; output_dir is one of them.

    Raises ranks.RanksFailed when a rank raises.
    """
    listed = [f"--{name}={value}" for name, value in ({"device": device} | arguments).items()]
    half_types.in_this_process()  # also for float32: all trainings can then use the same ranks
    held = ranks.run(run_script, cards, script, [str(config), *listed], device=device, time_limit=240)
    folder = Path(arguments["output_dir"])
    printed = re.search(r"held-out loss (\S+)", "".join(held.printed))
    return Trained(_losses(folder), float(printed[1]) if printed else float("nan"), folder, list(held))


def run_script(script: str, arguments: list[str]) -> dict[str, Any]:
    """On a rank: run a script of data/take_home with these arguments; returns what the rank held in the end."""
    workarounds.silence_paddlenlp_log()
    sys.path.append(str(files.ROOT / "xpulab" / "align"))  # log.py, which a reader copies beside the script
    given, sys.argv = sys.argv, [str(take_home.script_path(script)), *arguments]
    try:
        main = take_home.load_script(script).main
        made = main(arguments) if inspect.signature(main).parameters else main()
    finally:
        sys.argv = given
    return _held(made[0] if isinstance(made, tuple) else made)


def _held(trained: Any) -> dict[str, Any]:
    """What a rank holds: the shapes of its weights, their types, and how many numbers AdamW keeps for them."""
    weights = trained.model.state_dict()
    moments = [value for name, value in trained.optimizer.state_dict().items() if "moment" in name]
    masters = trained.optimizer.state_dict().get("master_weights", {})
    return {
        "shapes": {name: list(value.shape) for name, value in weights.items()},
        "dtypes": {str(value.dtype).rpartition(".")[2] for value in weights.values()},
        "moments": sum(int(value.size) for value in moments),
        "moment_dtypes": {str(value.dtype).rpartition(".")[2] for value in moments},
        "master_weights": len(masters),
    }


def _losses(folder: Path) -> list[float]:
    """The loss of each step, as a script wrote it."""
    if (history := folder / "history.json").exists():
        return [entry["loss"] for entry in json.loads(history.read_text(encoding="utf-8"))["training"]]
    return json.loads((folder / "losses.json").read_text(encoding="utf-8"))


def _arrays(folder: Path, *patterns: str) -> dict[str, np.ndarray]:
    """All tensors of the files of these names, bfloat16 as float32. Raises FileNotFoundError when there is none."""
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder} has no file {' or '.join(patterns)}")
    arrays: dict[str, np.ndarray] = {}
    for path in found:
        is_pickle = path.suffix == ".pdparams"
        arrays |= {name: each.numpy() for name, each in paddle.load(str(path)).items()} if is_pickle else load_file(path)
    return {
        name: value.view(bfloat16).astype("float32") if value.dtype == np.uint16 else value for name, value in arrays.items()
    }


def rounding(checkpoint: Path, right: Mapping[str, np.ndarray]) -> float:
    """How far AdamW's first moments of 8 bits in a checkpoint are from the right ones at most, in halves of a step.

    A step is the 127th part of the largest number of a column, or of a vector.
    """
    held = _arrays(checkpoint, "optimizer*.safetensors")
    found = 0.0
    for name, value in right.items():
        step = held[f"{name}/moment1_0@scales"] / 127
        found = max(found, float((np.abs(held[f"{name}/moment1_0"] * step - value) / np.maximum(step / 2, 1e-30)).max()))
    return found


def shares(held: Sequence[Mapping[str, Any]], alone: Sequence[Mapping[str, Any]]) -> list[float]:
    """What the fullest rank has of the weights and of AdamW's moments of one card, 1.0 for all. held, alone: as in Trained."""

    def counts(ranks: Sequence[Mapping[str, Any]]) -> list[int]:
        weights = max(sum(math.prod(shape) for shape in rank["shapes"].values()) for rank in ranks)
        return [weights, max(rank["moments"] for rank in ranks)]

    return [part / whole for part, whole in zip(counts(held), counts(alone), strict=True)]


def differences(measured: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> dict[str, float]:
    """By name the largest difference of two sets of arrays, inf where a name or a shape is missing."""
    found = {}
    for name in sorted({*measured, *wanted}):
        one, other = measured.get(name), wanted.get(name)
        if one is None or other is None or one.shape != other.shape:
            found[name] = float("inf")
        else:
            found[name] = float(np.abs(one.astype("float64") - other.astype("float64")).max())
    return found
