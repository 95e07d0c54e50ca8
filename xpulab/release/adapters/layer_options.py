"""A linear layer with an adapter on a grid: every kind, shape and state of PaddleNLP's LoRALinear, against W + s A B in numpy.

    check.grid("lora.layer-options", LAYERS, one_by_one(measure), add_row, level=level, seed=seed, means=...)

A case makes a layer, fills its matrices with random numbers, brings it into its state, and compares the output and the
gradients of the input and of the matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft.lora.lora_layers import LoRALinear

from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid

KINDS: dict[str, Mapping[str, Any]] = {
    "LoRA": {},
    "rsLoRA": {"rslora": True},
    "LoRA+": {"lora_plus_scale": 4.0},
    "PiSSA": {"pissa": True},
    "mixer": {"lora_use_mixer": True},
    "quick LoRA": {"use_quick_lora": True},
    "MoRA": {"use_mora": True},
}
"""By kind the options of LoRALinear."""

SHAPES = {"12 to 20": (12, 20), "20 to 12": (20, 12), "13 to 7": (13, 7), "16 to 16": (16, 16)}
INPUTS = {"a batch": (2, 5), "rows": (6,), "a view": (2, 5)}
"""By name the axes of the input before the last; a view is every second row of a larger tensor."""

STATES = ("trained", "merged", "merged twice", "merged and taken out", "switched off and on", "loaded")
DROPOUT = {"none": 0.0, "in training only": 0.5}

LAYERS = Grid(
    {
        "kind": KINDS,
        "rank": (4, 1),
        "alpha": (8, 3),
        "shape": SHAPES,
        "bias": (False, True),
        "input": INPUTS,
        "state": STATES,
        "mode": ("train", "eval"),
        "dropout": DROPOUT,
        "dtype": ("float32", "float64"),
    },
    {"dropout is random in training": lambda dropout, mode: dropout > 0 and mode == "train"},
    each="kind",
)
"""The grid. state: "loaded" is a new layer with the matrices and weights of a trained one."""


def measure(case: Case) -> Compared:
    """Make a layer on the device in use, and use it once. In the control the scale is a quarter larger."""
    rng = case.rng()
    layer = _filled(case, rng)
    exact = {name: value.numpy().astype("float64") for name, value in layer.state_dict().items()}
    if case.state == "loaded":
        source, layer = layer, _new(case)
        layer.train() if case.mode == "train" else layer.eval()
        if case.kind.get("pissa"):
            layer(_given(case, np.zeros([*INPUTS[case.labels["input"]], case.shape[0]])))  # its workaround: it starts once
        layer.set_state_dict(source.state_dict())
    layer.train() if case.mode == "train" else layer.eval()
    if case.state.startswith("merged"):
        layer.merge()
    if case.state == "merged twice":
        layer.merge()
    if case.state == "merged and taken out":
        layer.unmerge()
    if case.state == "switched off and on":
        layer.disable_lora = True
        layer(_given(case, np.zeros([*INPUTS[case.labels["input"]], case.shape[0]])))
        layer.disable_lora = False

    drawn = rng.standard_normal([*INPUTS[case.labels["input"]], case.shape[0]])
    given = _given(case, drawn)
    given.stop_gradient = False
    output = layer(given)
    slope = rng.standard_normal(output.shape)
    output.backward(paddle.to_tensor(slope, dtype=case.dtype))

    found = {"output": output, "input": given.grad}
    if not layer.merged:
        found |= {name: weight.grad for name, weight in layer.named_parameters() if "lora_" in name}
    x = drawn.astype(case.dtype).astype("float64").reshape(-1, case.shape[0])
    g = slope.astype(case.dtype).astype("float64").reshape(-1, case.shape[1])
    right, wrong = (_by_hand(case, exact, x, g, factor) for factor in (1.0, 1.25))
    # MoRA has its angles in single precision
    rounding = 2.0**-40 if case.dtype == "float64" and case.labels["kind"] != "MoRA" else 2.0**-14
    right = {name: right[name] for name in found}
    bound = {name: rounding * max(1.0, float(np.abs(value).max())) for name, value in right.items()}
    return Compared({name: value.numpy().reshape(right[name].shape) for name, value in found.items()}, right, bound, wrong)


def _kernels(case: Case) -> list[tuple[str, str, str]]:
    return [("matmul", case.dtype, "")]


add_row = add_row_of(_kernels)


def _new(case: Case) -> Any:
    options = {"r": case.rank, "lora_alpha": case.alpha, "lora_dropout": case.dropout, **case.kind}
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(case.dtype)
    try:
        layer = LoRALinear(*case.shape, bias_attr=None if case.bias else False, **options)
    finally:
        paddle.set_default_dtype(before)
    for name, weight in layer.named_parameters():
        weight.stop_gradient = "lora_" not in name  # as LoRAModel does
    return layer


def _filled(case: Case, rng: np.random.Generator) -> Any:
    """A layer with random weights, which PiSSA has started from."""
    layer = _new(case)
    for name, weight in layer.named_parameters():
        if "lora_" not in name:
            weight.set_value(paddle.to_tensor(rng.standard_normal(weight.shape) / 3, dtype=case.dtype))
    if case.kind.get("pissa"):
        layer(_given(case, np.zeros([*INPUTS[case.labels["input"]], case.shape[0]])))
    for name, weight in layer.named_parameters():
        if "lora_" in name:
            weight.set_value(paddle.to_tensor(rng.standard_normal(weight.shape) / 3, dtype=case.dtype))
    return layer


def _given(case: Case, array: np.ndarray) -> Any:
    if case.labels["input"] != "a view":
        return paddle.to_tensor(array, dtype=case.dtype)
    return paddle.to_tensor(np.repeat(array, 2, axis=0), dtype=case.dtype)[::2].detach()


def _by_hand(
    case: Case, weights: Mapping[str, np.ndarray], x: np.ndarray, g: np.ndarray, factor: float
) -> dict[str, np.ndarray]:
    """The output and the gradients in double precision. x: [rows, inputs]. g: the slope of the output, [rows, outputs]."""
    kind, parts = case.labels["kind"], {name: weight for name, weight in weights.items() if "lora_" in name}
    scale = factor * scale_of(kind, case.rank, case.alpha)
    total = weights["weight"] + added(kind, parts, case.shape, scale)
    return {
        "output": x @ total + weights.get("bias", 0.0),
        "input": g @ total.T,
        **slopes(kind, parts, case.shape, scale, x.T @ g),
    }


# ------------------------------------------------------------------------------------------ what a variant must compute


def best_of_rank(weight: np.ndarray, rank: int) -> np.ndarray:
    """The best approximation of a weight with this rank, in double precision, of the same shape."""
    left, values, right = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
    return left[:, :rank] * values[:rank] @ right[:rank]


def mora(square: np.ndarray, inputs: int, outputs: int) -> np.ndarray:
    """What MoRA adds to a weight [inputs, outputs]: the inputs in groups, each rotated and multiplied by the square."""
    size = len(square)
    x = np.eye(inputs)
    x = np.concatenate([x, x[:, : -inputs % size]], axis=1).reshape(inputs, -1, size)
    angles = np.outer(np.arange(x.shape[1]), 1e4 ** (-np.arange(0, size, 2) / size))
    turned = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], axis=-1)
    y = (x * np.tile(np.cos(angles), 2) + turned * np.tile(np.sin(angles), 2)) @ square
    return np.tile(y.reshape(inputs, -1), -(-outputs // y[0].size))[:, :outputs]


def scale_of(kind: str, rank: int, alpha: float) -> float:
    """The factor s of a variant."""
    if kind in ("PiSSA", "MoRA"):
        return 1.0
    return alpha / rank**0.5 if kind == "rsLoRA" else alpha / rank


def added(kind: str, parts: Mapping[str, np.ndarray], shape: Sequence[int], scale: float) -> np.ndarray:
    """What a variant adds to a weight of this shape, [inputs, outputs]; parts: its matrices, by "lora_A" and so on."""
    if kind == "MoRA":
        return scale * mora(parts["lora_A"], *shape)
    return scale * np.linalg.multi_dot([parts[name] for name in ("lora_A", "lora_AB", "lora_B") if name in parts])


def slopes(
    kind: str, parts: Mapping[str, np.ndarray], shape: Sequence[int], scale: float, whole: np.ndarray
) -> dict[str, np.ndarray]:
    """The gradients of the matrices of a variant, as `added` has them. whole: that of the weight, [inputs, outputs]."""
    a = parts["lora_A"]
    if kind == "MoRA":  # the gradient of each of its numbers follows from what it adds
        units = (mora(unit.reshape(a.shape), *shape) for unit in np.eye(a.size))
        return {"lora_A": scale * np.array([(unit * whole).sum() for unit in units]).reshape(a.shape)}
    b = parts["lora_B"]
    if "lora_AB" not in parts:
        return {"lora_A": scale * whole @ b.T, "lora_B": scale * a.T @ whole}
    middle = parts["lora_AB"]
    of_middle = scale * a.T @ whole @ b.T
    return {"lora_A": scale * whole @ (middle @ b).T, "lora_AB": of_middle, "lora_B": scale * (a @ middle).T @ whole}
