"""A whole model with an adapter on a grid: PaddleNLP's LoRAModel with options of LoRAConfig, beside numpy in double precision.

    run = one_by_one(partial(measure, work, bits))
    check.grid("lora.model-options", models(), run, add_row, level=level, seed=seed, means=...)

A case makes a small model and its adapter. A fresh one must give the logits of the base. Otherwise the adapter gets random
numbers and STEPS steps of SGD, and the model comes into its state: logits, every weight that trains, which weights these are,
and what is in the files must be those of W + s A B.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trl.llm_utils import get_lora_target_modules

from xpulab import reference
from xpulab.chapters.shared.models import IGNORED
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.tiny_training import FAMILIES, HEADS, VOCABULARY, WIDTH, Weights, new_network

PASSES = 8
"""How many passes in a row may add their rounding: two for each step and one for the logits, with a margin."""

BATCH, LENGTH = 2, 4
STEPS, RATE = 2, 0.02
FILE = "lora_model_state.pdparams"

KINDS: dict[str, Mapping[str, Any]] = {
    "LoRA": {},
    "rsLoRA": {"rslora": True},
    "LoRA+": {"lora_plus_scale": 4.0},
    "PiSSA": {"pissa": True},
    "quick LoRA": {"use_quick_lora": True},
    "mixer": {"lora_use_mixer": True},
}
"""By kind the options of LoRAConfig. A mixer is a square matrix between A and B."""

MODELS = {
    "Llama": (FAMILIES["llama"], HEADS),
    "Llama, grouped heads": (FAMILIES["llama"], 2),
    "Qwen2, grouped heads and biases": (FAMILIES["qwen2"], 2),
}
"""By name the classes of the model, and how many heads keys and values have."""

LINEAR = (r".*_proj",)
TARGETS: dict[str, tuple[tuple[str, ...] | None, int]] = {
    "every linear layer": (None, 2),
    "one pattern": ((r".*\.self_attn\.(q|v)_proj",), 2),
    "a list": ((r".*k_proj", r".*layers\.0\.mlp\.down_proj"), 2),
    "block 1 of twelve": ((r".*\.layers\.1\..*_proj",), 12),
}
"""By name target_modules, None for those that PaddleNLP knows, which must be LINEAR; and the number of blocks."""

FURTHER: dict[str, tuple[str, ...]] = {
    "none": (),
    "norms": (r".*norm\.weight",),
    "embedding": (r".*embed_tokens\.weight",),
    "head": (r"lm_head\.weight",),
    "all of block 1": (r".*\.layers\.1\..*",),
}
"""By name trainable_modules: what of the base trains beside the adapter."""

LOADED = ("loaded", "loaded again after a pass")
SAVED = ("trained and saved", "merged and saved")
STATES = (*SAVED, "fresh", "merged", "merged and taken out", "restored", "switched off and on", *LOADED)
"""All merge twice; merged and taken out: twice, too. restored: merged, then without the layers of LoRA. loaded again after a
pass: the workaround for PiSSA."""


def models() -> Grid:
    """The grid. dropout: in evaluation mode, also while training, nothing may be dropped; in training mode 1.0 drops all.

    bias: trainable_bias.
    """
    return Grid(
        {
            "kind": KINDS,
            "model": MODELS,
            "tied": (False, True),
            "target": TARGETS,
            "further": FURTHER,
            "bias": (None, "lora", "all"),
            "rank": (2, 1, 20),
            "alpha": (4, 3),
            "mode": ("train", "eval"),
            "dropout": (0.0, 0.5, 1.0),
            "state": STATES,
        },
        {
            "dropout is random in training": lambda dropout, mode: dropout == 0.5 and mode == "train",
            "quick LoRA refuses layers whose weight or bias trains": lambda kind, further, bias: (
                kind is KINDS["quick LoRA"] and (bias is not None or further is FURTHER["all of block 1"])
            ),
            "PiSSA has no more singular values, and lacks a part of its base when all is dropped": lambda kind, rank, dropout: (
                kind is KINDS["PiSSA"] and (rank > WIDTH or dropout == 1.0)
            ),
            "twelve blocks take long": lambda kind, target, state: (
                target[1] > 2 and (kind is not KINDS["LoRA"] or state not in (STATES[0], LOADED[0]))
            ),
        },
        uninformative={"state": ["fresh", "restored"]},
    )


@dataclass(frozen=True)
class _Problem:
    """base: the weights by name. parts: the matrices of the adapter by name. ids, labels: [batch, length].

    layers: the names of those that get an adapter. config: of the model.
    """

    base: Weights
    parts: Weights
    ids: np.ndarray
    labels: np.ndarray
    layers: Sequence[str]
    config: Any


def measure(work: Path, bits: int, case: Case) -> Compared:
    """Adapt, train and compare a model on the device in use. In the control the scale is a quarter larger.

    work: a folder for the files. bits: that products keep of their factors.
    """
    rng = case.rng()
    network, config, base = _base(case, rng)
    layers = [
        name.removesuffix(".weight")
        for name in base
        if _is_named(name, [f"{each}.weight" for each in case.target[0] or LINEAR])
    ]
    parts: Weights = {}
    for layer in layers:
        inputs, outputs = base[f"{layer}.weight"].shape
        shapes = {"lora_A": (inputs, case.rank), "lora_B": (case.rank, outputs)}
        for name, shape in {**shapes, **({"lora_AB": (case.rank, case.rank)} if "lora_use_mixer" in case.kind else {})}.items():
            parts[f"{layer}.{name}"] = (rng.standard_normal(shape) / 3).astype("float32").astype("float64")
    ids, labels = rng.integers(0, VOCABULARY, (2, BATCH, LENGTH))
    labels[0, :2] = IGNORED
    problem = _Problem(base, parts, ids, labels, layers, config)
    gc.freeze()  # PaddleNLP collects garbage when it loads, which takes 0.2 s for all objects of Paddle
    try:
        found = _by_paddle(work, case, problem, network)
    finally:
        gc.unfreeze()
    right, wrong = (_by_hand(case, problem, factor) for factor in (1.0, 1.25))
    rounding = PASSES * reference.bound_of_gradients(case.target[1], bits=bits)
    bound = {name: rounding * max(1.0, float(np.abs(value).max())) for name, value in right.items()}
    return Compared(found, right, bound, wrong)


def _base(case: Case, rng: np.random.Generator) -> tuple[Any, Any, Weights]:
    """The model without an adapter; from a new generator of the case always the same."""
    family, keys = case.model
    sizes = {"num_hidden_layers": case.target[1], "num_key_value_heads": keys, "tie_word_embeddings": case.tied}
    return new_network(family, rng, **sizes)


def _is_further(case: Case, problem: _Problem, name: str) -> bool:
    """Whether a weight of the base trains; where embedding and head are one, under either name."""
    if case.bias and name.endswith("bias") and (case.bias == "all" or name.removesuffix(".bias") in problem.layers):
        return True
    tied = ("lm_head.weight", f"{problem.config.model_type}.embed_tokens.weight") if case.tied else ()
    return any(_is_named(each, case.further) for each in (tied if name in tied else (name,)))


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


# ----------------------------------------------------------------------------------------------------------------- PaddleNLP


def _by_paddle(work: Path, case: Case, problem: _Problem, base: Any) -> Weights:
    target: Any = case.target[0] or get_lora_target_modules(base)
    target = target[0] if len(target) == 1 else list(target)
    options = {**case.kind, "trainable_bias": case.bias, "r": case.rank, "lora_alpha": case.alpha, "lora_dropout": case.dropout}
    options["trainable_modules"] = list(case.further) or None
    adapted: Any = LoRAModel(base, LoRAConfig(target_modules=target, **options))
    weights = adapted.model.state_dict()
    found = {f"trains: {name}": np.array([not weight.stop_gradient], float) for name, weight in weights.items()}
    if case.state == "fresh":
        return {**found, "logits": _logits(case, adapted, problem)}
    if case.labels["kind"] == "PiSSA":
        _logits(case, adapted, problem)  # the first pass starts it
    for name, value in problem.parts.items():
        weights[name].set_value(paddle.to_tensor(value.astype("float32")))
    found["losses"] = _train(case, adapted, problem)
    if case.state in ("merged", *SAVED[1:], "merged and taken out", "restored"):
        adapted.merge()
        adapted.merge()
    if case.state in (*SAVED, *LOADED):
        adapted.save_pretrained(str(work))
    if case.state in SAVED:
        stored, in_file = paddle.load(str(work / FILE)), LoRAConfig.from_pretrained(str(work))
        found |= {f"file: {name}": value.numpy() for name, value in stored.items()}
        found["options"] = np.array([in_file.to_dict() == adapted.lora_config.to_dict()], float)
        found["scaling"] = np.array([json.loads((work / "lora_config.json").read_text())["scaling"]])
    if case.state in LOADED:
        adapted = LoRAModel.from_pretrained(_base(case, case.rng())[0], str(work))
    if case.state == LOADED[1]:
        _logits(case, adapted, problem)
        adapted.set_state_dict(paddle.load(str(work / FILE)))
    if case.state == "merged and taken out":
        adapted.unmerge()
        adapted.unmerge()
    if case.state == "restored":
        restored = adapted.restore_original_model()
        return {
            **found,
            "logits": _logits(case, restored, problem),
            **{f"weight: {name}": value.numpy() for name, value in restored.state_dict().items()},
        }
    if case.state == "switched off and on":
        adapted.disable_lora()
        found["logits, switched off"] = _logits(case, adapted, problem)
        adapted.enable_lora()
    found["logits"] = _logits(case, adapted, problem)
    return {**found, **{f"weight: {name}": value.numpy() for name, value in adapted.model.state_dict().items()}}


def _train(case: Case, adapted: Any, problem: _Problem) -> np.ndarray:
    """Take the steps; returns the loss of each."""
    adapted.train() if case.mode == "train" else adapted.eval()
    learning = [weight for weight in adapted.parameters() if not weight.stop_gradient]
    optimizer = paddle.optimizer.SGD(RATE, parameters=learning)
    losses = []
    for _ in range(STEPS):
        loss = adapted(input_ids=paddle.to_tensor(problem.ids), labels=paddle.to_tensor(problem.labels))[0]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        losses.append(float(loss))
    return np.array(losses)


def _logits(case: Case, network: Any, problem: _Problem) -> np.ndarray:
    network.train() if case.mode == "train" else network.eval()
    with paddle.no_grad():
        result = network(input_ids=paddle.to_tensor(problem.ids))
    return (result[0] if isinstance(result, tuple) else result).numpy()


# --------------------------------------------------------------------------------------------------------------- the formula


def _by_hand(case: Case, problem: _Problem, factor: float) -> Weights:
    """factor: of the scale. A fresh adapter has the scale 0, and a quarter of its own for the factor 1.25."""
    kind, is_merged = case.labels["kind"], case.state in ("merged", "merged and saved", "restored")
    scale = 1.0 if kind == "PiSSA" else case.alpha / (case.rank**0.5 if kind == "rsLoRA" else case.rank)
    drops = case.dropout == 1.0 and case.mode == "train"
    live, scale = (scale * (factor - is_off) for is_off in (case.state == "fresh" or drops, case.state == "fresh"))
    weights = {**problem.base, **problem.parts}
    batch = {"input_ids": problem.ids, "attention_mask": np.ones_like(problem.ids), "labels": problem.labels}
    learning = [*problem.parts, *(name for name in problem.base if _is_further(case, problem, name))]
    trains = {name: np.array([name in learning], float) for name in weights}
    found = {f"trains: {name}": value for name, value in _with_tied(case, problem, trains).items()}
    if case.state == "fresh":
        return {**found, "logits": reference.logits(_whole(problem, weights, live), problem.config, batch)}
    for layer in problem.layers if kind == "PiSSA" else ():
        weights[f"{layer}.weight"] = weights[f"{layer}.weight"] - _best_of_rank(weights[f"{layer}.weight"], case.rank)
    found["losses"] = _train_by_hand(case, problem, batch, weights, learning, live)
    whole = _whole(problem, weights, scale if is_merged else live)
    found["logits"] = reference.logits(whole, problem.config, batch)
    if case.state == "switched off and on":
        found["logits, switched off"] = reference.logits(weights, problem.config, batch)
    if case.state in SAVED:
        found |= {"options": np.array([1.0]), "scaling": np.array([scale])}
        held = {**weights, **whole} if is_merged else weights
        in_file = _with_tied(case, problem, {name: held[name] for name in learning})
        found |= {f"file: {name}": value for name, value in in_file.items()}
    held = (whole if case.state == "restored" else {**weights, **whole}) if is_merged else weights
    return {**found, **{f"weight: {name}": value for name, value in _with_tied(case, problem, held).items()}}


def _with_tied(case: Case, problem: _Problem, weights: Weights) -> Weights:
    """The weights, and the embedding a second time under the name of the head, where they are the same."""
    embedding = f"{problem.config.model_type}.embed_tokens.weight"
    return {**weights, "lm_head.weight": weights[embedding]} if case.tied and embedding in weights else weights


def _whole(problem: _Problem, weights: Weights, scale: float) -> Weights:
    """The weights of the base, and what the adapter adds to them."""
    whole = {name: value for name, value in weights.items() if ".lora_" not in name}
    for layer in problem.layers:
        a, middle, b = _parts(weights, layer)
        whole[f"{layer}.weight"] = whole[f"{layer}.weight"] + scale * a @ middle @ b
    return whole


def _parts(weights: Weights, layer: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, what is between both, and B."""
    a, b = weights[f"{layer}.lora_A"], weights[f"{layer}.lora_B"]
    return a, weights.get(f"{layer}.lora_AB", np.eye(len(b))), b


def _best_of_rank(weight: np.ndarray, rank: int) -> np.ndarray:
    """The best approximation of a weight with this rank, of the same shape."""
    left, values, right = np.linalg.svd(weight, full_matrices=False)
    return left[:, :rank] * values[:rank] @ right[:rank]


def _train_by_hand(
    case: Case, problem: _Problem, batch: Weights, weights: Weights, learning: Sequence[str], scale: float
) -> np.ndarray:
    """Replace the weights by those after the steps; returns the loss of each."""
    losses, faster = [], case.kind.get("lora_plus_scale", 1.0)
    for _ in range(STEPS):
        whole = _whole(problem, weights, scale)
        loss, gradients = reference.loss_and_gradients(whole, problem.config, batch, IGNORED)
        losses.append(loss)
        for layer in problem.layers:
            (a, middle, b), slope = _parts(weights, layer), scale * gradients[f"{layer}.weight"]
            gradients |= {f"{layer}.lora_A": slope @ (middle @ b).T, f"{layer}.lora_B": (a @ middle).T @ slope}
            gradients[f"{layer}.lora_AB"] = a.T @ slope @ b.T
        for name in learning:
            weights[name] = weights[name] - RATE * (faster if name.endswith("lora_B") else 1.0) * gradients[name]
    return np.array(losses)
