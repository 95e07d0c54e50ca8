"""Layers of fleet whose weight is cut over a group of ranks, as a grid beside numpy.

    of_layers = tensor_layers.grid(here.name)
    check.grid("parallel-loss.layer-options", of_layers, tensor_layers.run(here.name, coarse), add_row, ...)

Four ranks are two groups, each of which has its own layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet

from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, Rule
from xpulab.records.refusals import refusal

RANKS, ROWS, IN, OUT = 4, 5, 4, 6
LAYERS = ("column", "row", "embedding", "loss")
GROUPS = {"0 2, 1 3": ((0, 2), (1, 3)), "0 1, 2 3": ((0, 1), (2, 3))}
ATTRIBUTES = {"initializer": True, "none": False}
SIDES = {"in parts": False, "whole": True}
"""Whether the output of a column is gathered, and whether the input of a row is whole."""


def grid(device: str) -> Grid:
    """The grid; what data/refusals.yaml declares is a rule."""
    rules: dict[str, Rule] = {
        "only linear layers have a bias and two sides": lambda layer, bias, side: (
            layer in ("embedding", "loss") and (bias == "bias" or side)
        ),
        "a loss has no weight": lambda layer, attribute: layer == "loss" and not attribute,
        "only a loss ignores a class": lambda layer, ignored: layer != "loss" and ignored != -100,
    }
    if lacks := refusal(device, "c_softmax_with_cross_entropy"):
        rules[lacks.format_reason()] = lambda layer: layer == "loss"
    axes: dict[str, Any] = {"layer": LAYERS, "group": GROUPS, "bias": ("none", "bias"), "side": SIDES, "attribute": ATTRIBUTES}
    return Grid({**axes, "ignored": (-100, 3, 0)}, rules, each="layer")


def run(device: str, coarse: float) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: result and gradients on each rank. coarse: what products round on this device."""

    def compared(case: Case, of_ranks: list[Any]) -> Compared:
        right = [_right(case, rank) for rank in range(RANKS)]
        found, exact = (
            {f"{name} {rank}": of[rank][name] for rank in range(RANKS) for name in right[rank]} for of in (of_ranks, right)
        )
        return Compared(found, exact, {name: 1e-5 + 20 * coarse for name in exact})

    return on_ranks(_on_rank, RANKS, device, compared, lambda _: range(RANKS), lambda _: _start())


def _start() -> None:
    fleet.init(is_collective=True)
    fleet.meta_parallel.model_parallel_random_seed(1)


def _place(case: Case, rank: int) -> int:
    """The place of a rank in its group."""
    return next(members.index(rank) for members in case.group if rank in members)


def _arrays(case: Case) -> dict[str, Any]:
    """Weight [IN, OUT], bias [OUT], input [ROWS, IN], factors of the result in the loss, words and logits."""
    rng = case.rng()
    shapes = {"weight": (IN, OUT), "bias": (OUT,), "x": (ROWS, IN), "factors": (ROWS, OUT), "logits": (ROWS, OUT)}
    arrays: dict[str, Any] = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return arrays | {"words": np.array([0, 3, 2, 3, 1]), "classes": np.array([0, 3, 5, 2, -100 if case.ignored == -100 else 3])}


def _part(array: Any, axis: int, place: int) -> Any:
    return np.split(array, 2, axis)[place]


def _on_rank(case: Case) -> dict[str, Any]:
    rank, arrays = dist.get_rank(), _arrays(case)
    layers: Any = fleet.meta_parallel
    groups = [dist.new_group(list(members)) for members in case.group]  # each rank makes both: they have their own ids
    place, (group,) = _place(case, rank), [each for each in groups if rank in each.ranks]
    axis = 1 if case.layer == "column" else 0
    weight = _part(arrays["weight"], axis, place).astype("float32")
    given: dict[str, Any] = {"mp_group": group}
    if case.layer != "loss" and case.attribute:
        given["weight_attr"] = paddle.ParamAttr(initializer=nn.initializer.Assign(weight))
    if case.layer == "loss":
        x = _leaf(_part(arrays["logits"], 1, place))
        y = layers.ParallelCrossEntropy(ignore_index=case.ignored, **given)(x, paddle.to_tensor(arrays["classes"])[:, None])
        y.sum().backward()
        return {"result": y.numpy().ravel(), "input": x.grad.numpy()}
    layer: Any
    if case.layer == "embedding":
        layer, x = layers.VocabParallelEmbedding(IN, OUT, **given), paddle.to_tensor(arrays["words"])
    elif case.layer == "column":
        layer = layers.ColumnParallelLinear(IN, OUT, has_bias=case.bias == "bias", gather_output=case.side, **given)
        x = _leaf(arrays["x"])
    else:
        layer = layers.RowParallelLinear(IN, OUT, has_bias=case.bias == "bias", input_is_parallel=not case.side, **given)
        x = _leaf(arrays["x"] if case.side else _part(arrays["x"], 1, place))
    if not case.attribute:
        layer.weight.set_value(weight)
    if case.bias == "bias":
        bias = _part(arrays["bias"], 0, place) if case.layer == "column" else arrays["bias"]
        layer.bias.set_value(bias.astype("float32"))
    y = layer(x)
    factors = arrays["factors"]
    factors = _part(factors, 1, place) if case.layer == "column" and not case.side else factors
    (y * paddle.to_tensor(factors.astype("float32"))).sum().backward()
    found = {"result": y.numpy(), "weight": layer.weight.grad.numpy()}
    return found if case.layer == "embedding" else found | {"input": x.grad.numpy()}


def _leaf(array: Any) -> Any:
    return paddle.to_tensor(array.astype("float32"), stop_gradient=False)


def _right(case: Case, rank: int) -> dict[str, Any]:
    """What a rank must have, in double precision."""
    arrays, place = _arrays(case), _place(case, rank)
    if case.layer == "loss":
        shares = np.exp(arrays["logits"]) / np.exp(arrays["logits"]).sum(1, keepdims=True)
        counts = arrays["classes"] != case.ignored
        chosen = np.eye(OUT)[np.where(counts, arrays["classes"], 0)]
        loss = -np.log((shares * chosen).sum(1)) * counts
        return {"result": loss, "input": _part((shares - chosen) * counts[:, None], 1, place)}
    factors = arrays["factors"]
    x = np.eye(IN)[arrays["words"]] if case.layer == "embedding" else arrays["x"]
    result = x @ arrays["weight"] + (arrays["bias"] if case.bias == "bias" else 0.0)
    of_weight, of_input = x.T @ factors, factors @ arrays["weight"].T
    if case.layer == "column":
        return {
            "result": result if case.side else _part(result, 1, place),
            "weight": _part(of_weight, 1, place),
            "input": of_input,
        }
    found = {"result": result, "weight": _part(of_weight, 0, place)}
    return found if case.layer == "embedding" else found | {"input": of_input if case.side else _part(of_input, 1, place)}
