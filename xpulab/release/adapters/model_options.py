"""A whole model with an adapter on a grid: PaddleNLP's LoRAModel with options of LoRAConfig, beside numpy in double precision.

    run = one_by_one(partial(measure, work, bits))
    check.grid("lora.model-options", models(), run, add_row, level=level, seed=seed, means=...)

A case makes a small model and its adapter. A fresh one must give the logits of the base. Otherwise the adapter gets random
numbers and STEPS steps of SGD, and the model comes into its state: logits, every weight that trains, which weights these are,
and what is in the files must be those of the formula.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from paddlenlp.trl.llm_utils import get_lora_target_modules

from xpulab import reference
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.adapters.layer_options import KINDS, added, best_of_rank, scale_of, slopes

WIDTH, INNER, VOCABULARY, HEADS = 8, 12, 16, 4
PASSES = 8
"""How many passes in a row may add their rounding: two for each step and one for the logits, with a margin."""

BATCH, LENGTH, IGNORED = 2, 4, -100
STEPS, RATE = 2, 0.02
FILE = "lora_model_state.pdparams"
PLUS = KINDS["LoRA+"]["lora_plus_scale"]
SIZES = {"hidden_size": WIDTH, "intermediate_size": INNER, "vocab_size": VOCABULARY, "num_attention_heads": HEADS}

MODELS: dict[str, tuple[type, type, int]] = {
    "Llama": (LlamaConfig, LlamaForCausalLM, HEADS),
    "Llama, grouped heads": (LlamaConfig, LlamaForCausalLM, 2),
    "Qwen2, grouped heads and biases": (Qwen2Config, Qwen2ForCausalLM, 2),
}
"""By name the classes of configuration and model, and how many heads keys and values have."""

OUTPUTS = {"q_proj": WIDTH, "o_proj": WIDTH, "gate_proj": INNER, "up_proj": INNER, "down_proj": WIDTH}
"""By name of a linear layer its outputs; those of k_proj and v_proj depend on the heads."""


@dataclass(frozen=True)
class Target:
    """Layers that get an adapter.

    patterns: for target_modules; None for those that PaddleNLP knows. has: whether the block of this number has an adapter at
    the linear layer of this name. blocks: of the model.
    """

    patterns: str | tuple[str, ...] | None
    has: Callable[[int, str], bool]
    blocks: int = 2


TARGETS = {
    "every linear layer": Target(None, lambda block, layer: True),
    "one pattern": Target(r".*\.self_attn\.(q|v)_proj", lambda block, layer: layer in ("q_proj", "v_proj")),
    "a list": Target((r".*k_proj", r".*layers\.0\.mlp\.down_proj"), lambda block, layer: _is_listed(block, layer)),
    "a list that names some twice": Target((r".*o_proj", r".*self_attn\..*_proj"), lambda block, layer: layer[0] in "qkvo"),
    "block 1 of twelve": Target(r".*\.layers\.1\..*_proj", lambda block, layer: block == 1, blocks=12),
}


def _is_listed(block: int, layer: str) -> bool:
    return layer == "k_proj" or (block == 0 and layer == "down_proj")


FURTHER: dict[str, tuple[Sequence[str] | None, Callable[[str], bool]]] = {
    "none": (None, lambda name: False),
    "norms": ([r".*norm\.weight"], lambda name: "norm" in name),
    "embedding": ([r".*embed_tokens\.weight"], lambda name: "embed_tokens" in name),
    "head": ([r"lm_head\.weight"], lambda name: "lm_head" in name),
    "all of block 1": ([r".*\.layers\.1\..*"], lambda name: ".layers.1." in name),
}
"""By name what trainable_modules is, and whether it names a weight of the base."""

BIASES = ("none", "lora", "all")
LOADED = ("loaded", "loaded again after a pass")
RESTORED = ("restored", "restored, its names")
STATES = ("trained and saved", "fresh", "merged", "merged and taken out", "switched off and on", *LOADED, *RESTORED)
"""loaded again after a pass: the workaround for PiSSA. restored: merged, and with ordinary layers again, without the biases
that PaddleNLP adds; its names: with them."""

DEEP = (
    (KINDS["LoRA"], "trained and saved"),
    (KINDS["rsLoRA"], "fresh"),
    (KINDS["PiSSA"], "merged"),
    (KINDS["LoRA"], "loaded"),
)
"""What is tried with twelve blocks: kinds and states."""


def models() -> Grid:
    """The grid. dropout: evaluated, and trained in evaluation mode, where nothing may be dropped."""
    return Grid(
        {
            "kind": KINDS,
            "model": MODELS,
            "tied": (False, True),
            "target": TARGETS,
            "rank": (2, 1),
            "alpha": (4, 3),
            "further": FURTHER,
            "biases": BIASES,
            "mode": ("train", "eval"),
            "dropout": (0.0, 0.5),
            "state": STATES,
        },
        {
            "dropout is random in training": lambda dropout, mode: dropout > 0 and mode == "train",
            "only Qwen2 has biases": lambda model, biases: biases != "none" and model[0] is not Qwen2Config,
            "quick LoRA refuses layers whose weight or bias trains": lambda kind, biases, further: (
                kind is KINDS["quick LoRA"] and (biases != "none" or further is FURTHER["all of block 1"])
            ),
            "twelve blocks take long": lambda kind, target, state: target.blocks > 2 and (kind, state) not in DEEP,
        },
        hollow={"state": ["fresh"]},
    )


Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class _Problem:
    """base: the weights by name. parts: the matrices of the adapter by name. ids, labels: [batch, length]."""

    base: Values
    parts: Values
    ids: np.ndarray
    labels: np.ndarray


def measure(work: Path, bits: int, case: Case) -> Compared:
    """Adapt, train and compare a model on the device in use. In the control the scale is a quarter larger.

    work: a folder for the files. bits: that products keep of their factors.
    """
    problem = _problem(case)
    gc.freeze()  # PaddleNLP collects garbage when it loads, which takes 0.2 s for all objects of Paddle
    try:
        found = _by_paddle(work, case, problem)
    finally:
        gc.unfreeze()
    right, wrong = (_by_hand(case, problem, factor) for factor in (1.0, 1.25))
    rounding = PASSES * reference.bound_of_gradients(case.target.blocks, bits=bits)
    bound = {name: rounding * max(1.0, float(np.abs(value).max())) for name, value in right.items()}
    return Compared(found, right, bound, wrong)


def _problem(case: Case) -> _Problem:
    rng = case.rng()
    shapes = _shapes(case)
    base = {name: _drawn(rng, name, shape) for name, shape in shapes.items()}
    parts: Values = {}
    for weight in _adapted(case):
        inputs, outputs = shapes[f"{weight}.weight"]
        size = round(((inputs + outputs) * case.rank) ** 0.5) // 2 * 2
        own = {"lora_A": (size, size)} if case.labels["kind"] == "MoRA" else {"lora_A": (inputs, case.rank)}
        own |= {"lora_AB": (case.rank, case.rank)} if case.labels["kind"] == "mixer" else {}
        own |= {"lora_B": (case.rank, outputs)} if case.labels["kind"] != "MoRA" else {}
        parts |= {f"{weight}.{name}": (rng.standard_normal(shape) / 3).astype("float32") for name, shape in own.items()}
    ids, labels = rng.integers(0, VOCABULARY, (2, BATCH, LENGTH))
    labels[0, :2] = IGNORED
    return _Problem(base, parts, ids, labels)


def _drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Norms are near 1, weights so large that attention is not uniform, and no embedding so small that its norm amplifies."""
    drawn = 0.4 * rng.standard_normal(shape)
    if "embed_tokens" in name:
        drawn = 0.5 * np.sign(drawn) + drawn / 2
    return (1 + drawn / 4 if "norm" in name else drawn).astype("float32")


def _prefix(case: Case) -> str:
    return "qwen2" if case.model[0] is Qwen2Config else "llama"


def _config(case: Case) -> Any:
    configuration, _, keys = case.model
    return configuration(**SIZES, num_hidden_layers=case.target.blocks, num_key_value_heads=keys, tie_word_embeddings=case.tied)


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """By name the shape of each weight of the base."""
    keys = WIDTH * case.model[2] // HEADS
    prefix, outputs = _prefix(case), {**OUTPUTS, "k_proj": keys, "v_proj": keys}
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}.embed_tokens.weight": (VOCABULARY, WIDTH),
        f"{prefix}.norm.weight": (WIDTH,),
    }
    for block in range(case.target.blocks):
        name = f"{prefix}.layers.{block}"
        shapes |= {f"{name}.{norm}_layernorm.weight": (WIDTH,) for norm in ("input", "post_attention")}
        for layer, count in outputs.items():
            shapes[f"{_full(case, block, layer)}.weight"] = (INNER if layer == "down_proj" else WIDTH, count)
            if prefix == "qwen2" and layer[0] in "qkv":
                shapes[f"{_full(case, block, layer)}.bias"] = (count,)
    return shapes if case.tied else {**shapes, "lm_head.weight": (WIDTH, VOCABULARY)}


def _full(case: Case, block: int, layer: str) -> str:
    part = "self_attn" if layer[0] in "qkvo" else "mlp"
    return f"{_prefix(case)}.layers.{block}.{part}.{layer}"


def _adapted(case: Case) -> list[str]:
    """The full names of the layers that get an adapter."""
    layers = (*OUTPUTS, "k_proj", "v_proj")
    blocks = range(case.target.blocks)
    return [_full(case, block, layer) for block in blocks for layer in layers if case.target.has(block, layer)]


def _trains(case: Case, name: str) -> bool:
    """Whether a weight of the base trains."""
    if name.endswith("bias") and (
        case.biases == "all" or (case.biases == "lora" and name.rpartition(".")[0] in _adapted(case))
    ):
        return True
    tied = {"lm_head.weight", f"{_prefix(case)}.embed_tokens.weight"} if case.tied else set()
    return any(case.further[1](each) for each in (tied if name in tied else [name]))


# ----------------------------------------------------------------------------------------------------------------- PaddleNLP


def _by_paddle(work: Path, case: Case, problem: _Problem) -> Values:
    adapted = _new(case, problem)
    found = {
        f"trains: {name}": np.array([not weight.stop_gradient], float) for name, weight in adapted.model.state_dict().items()
    }
    if case.state == "fresh":
        return {**found, "logits": _logits(case, adapted, problem)}
    if case.labels["kind"] == "PiSSA":
        _logits(case, adapted, problem)  # the first pass starts it
    weights = adapted.model.state_dict()
    for name, value in problem.parts.items():
        weights[name].set_value(paddle.to_tensor(value))
    found["losses"] = _train(case, adapted, problem)
    if case.state == "trained and saved" or case.state in LOADED:
        adapted.save_pretrained(str(work))
    if case.state == "trained and saved":
        stored, options = paddle.load(str(work / FILE)), LoRAConfig.from_pretrained(str(work))
        found |= {f"file: {name}": value.numpy() for name, value in stored.items()}
        found["options"] = np.array([options.to_dict() == adapted.lora_config.to_dict()], float)
    network = _in_its_state(work, case, problem, adapted)
    if case.state == RESTORED[1]:
        return {**found, "names": np.array([sorted(network.state_dict()) == sorted(_with_tied(case, problem.base))], float)}
    if case.state == "switched off and on":
        network.disable_lora()
        found["logits, switched off"] = _logits(case, network, problem)
        network.enable_lora()
    found["logits"] = _logits(case, network, problem)
    held = network.state_dict() if case.state == RESTORED[0] else network.model.state_dict()
    return {**found, **{f"weight: {name}": value.numpy() for name, value in held.items()}}


def _in_its_state(work: Path, case: Case, problem: _Problem, adapted: Any) -> Any:
    """The trained model merged, or what the state of the case says; loaded from files in the folder."""
    if case.state in LOADED:
        adapted = LoRAModel.from_pretrained(_base(case, problem), str(work))
    if case.state == LOADED[1]:
        _logits(case, adapted, problem)
        adapted.set_state_dict(paddle.load(str(work / FILE)))
    if case.state in ("merged", "merged and taken out", *RESTORED):
        adapted.merge()
    if case.state == "merged and taken out":
        adapted.unmerge()
    if case.state not in RESTORED:
        return adapted
    restored = adapted.restore_original_model()
    if case.state == RESTORED[0]:
        for name, layer in restored.named_sublayers():
            if f"{name}.weight" in problem.base and f"{name}.bias" not in problem.base:
                layer.bias = None
    return restored


def _base(case: Case, problem: _Problem) -> Any:
    """The model without an adapter."""
    network = case.model[1](_config(case))
    for name, weight in network.named_parameters():
        weight.set_value(paddle.to_tensor(problem.base[name]))
    return network


def _new(case: Case, problem: _Problem) -> Any:
    base, target = _base(case, problem), case.target.patterns
    if target is None:
        target = get_lora_target_modules(base)
    options = {**case.kind, "r": case.rank, "lora_alpha": case.alpha, "lora_dropout": case.dropout}
    options |= {"trainable_modules": case.further[0], "trainable_bias": None if case.biases == "none" else case.biases}
    return LoRAModel(base, LoRAConfig(target_modules=target if isinstance(target, str) else list(target), **options))


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


def _by_hand(case: Case, problem: _Problem, factor: float) -> Values:
    """factor: of the scale. A fresh adapter has the scale 0, and a quarter of its own for the factor 1.25."""
    kind, names = case.labels["kind"], _adapted(case)
    scale = scale_of(kind, case.rank, case.alpha) * (factor - (case.state == "fresh"))
    weights = {name: value.astype("float64") for name, value in (problem.base | problem.parts).items()}
    learning = [name for name in weights if name in problem.parts or _trains(case, name)]
    batch = {"input_ids": problem.ids, "attention_mask": np.ones_like(problem.ids)}
    trains = {name: np.array([name in learning], float) for name in weights}
    found = {f"trains: {name}": value for name, value in _with_tied(case, trains).items()}
    if case.state == "fresh":
        return {**found, "logits": reference.logits(_whole(case, weights, scale), _config(case), batch)}

    if kind == "PiSSA":
        for weight in (f"{layer}.weight" for layer in names):
            weights[weight] = weights[weight] - best_of_rank(weights[weight], case.rank)
    found["losses"] = _train_by_hand(case, {**batch, "labels": problem.labels}, weights, learning, scale)
    if case.state == RESTORED[1]:
        return {**found, "names": np.array([1.0])}
    whole = _whole(case, weights, scale)
    found["logits"] = reference.logits(whole, _config(case), batch)
    if case.state == "switched off and on":
        found["logits, switched off"] = reference.logits(weights, _config(case), batch)
    if case.state == "trained and saved":
        found["options"] = np.array([1.0])
        in_file = {name: weights[name] for name in learning}
        found |= {f"file: {name}": value for name, value in _with_tied(case, in_file).items()}
    held = {"merged": {**weights, **whole}, RESTORED[0]: whole}.get(case.state, weights)
    return {**found, **{f"weight: {name}": value for name, value in _with_tied(case, held).items()}}


def _with_tied(case: Case, weights: Values) -> Values:
    """The weights, and the embedding a second time under the name of the head, where they are the same."""
    embedding = f"{_prefix(case)}.embed_tokens.weight"
    return {**weights, "lm_head.weight": weights[embedding]} if case.tied and embedding in weights else weights


def _whole(case: Case, weights: Values, scale: float) -> Values:
    """The weights of the base, and what the adapter adds to them."""
    whole = {name: value for name, value in weights.items() if ".lora_" not in name}
    for layer in _adapted(case):
        weight = whole[f"{layer}.weight"]
        whole[f"{layer}.weight"] = weight + added(case.labels["kind"], _parts(weights, layer), weight.shape, scale)
    return whole


def _parts(weights: Values, layer: str) -> Values:
    """The matrices of the adapter of a layer, by "lora_A" and so on."""
    own = f"{layer}.lora_"
    return {name.rpartition(".")[2]: value for name, value in weights.items() if name.startswith(own)}


def _train_by_hand(case: Case, batch: Values, weights: Values, learning: Sequence[str], scale: float) -> np.ndarray:
    """Replace the weights by those after the steps; returns the loss of each."""
    kind, losses = case.labels["kind"], []
    for _ in range(STEPS):
        loss, gradients = reference.loss_and_gradients(_whole(case, weights, scale), _config(case), batch, IGNORED)
        losses.append(loss)
        for layer in _adapted(case):
            of_weight = gradients[f"{layer}.weight"]
            of_parts = slopes(kind, _parts(weights, layer), of_weight.shape, scale, of_weight)
            gradients |= {f"{layer}.{name}": value for name, value in of_parts.items()}
        for name in learning:
            is_faster = kind == "LoRA+" and name.endswith("lora_B")
            weights[name] = weights[name] - RATE * (PLUS if is_faster else 1.0) * gradients[name]
    return np.array(losses)
