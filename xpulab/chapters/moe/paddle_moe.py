"""The mixture-of-experts layer of Paddle, paddle.incubate.distributed.models.moe, and its operators: what they compute.

Offered: operators, row_of_operator, error_of, GATES, incubate_layer, logits_layer, output_of, row_of_layer, row_of_two_ranks,
gate_weight and linear_experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from xpulab import ranks
from xpulab.checks.compare import first_line
from xpulab.checks.table import Table
from xpulab.records.refusals import format_undeclared, refusal
from xpulab.reference import moe as reference

HIDDEN, EXPERTS = 16, 4


def error_of(call: Callable[[], Any]) -> str:
    """ "none", or the error that the call raises: its type and the first line of its message."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return "none"


@dataclass(frozen=True)
class Operator:
    """One operator of paddle.distributed.models.moe.utils, or a fused one.

    call: returns the result as an array. expected: the value by its definition. wrong: a near value that is wrong.
    """

    call: Callable[[], np.ndarray]
    expected: np.ndarray
    wrong: np.ndarray


def operators() -> dict[str, Operator]:
    """By name the operators of which paddle.incubate's layer is made, and moe_combine, with small inputs."""
    from paddle.distributed.models.moe import utils
    from paddle.incubate.nn.functional import moe_combine

    def whole(*numbers: int) -> paddle.Tensor:
        return paddle.to_tensor(list(numbers), dtype="int64")

    gates, chosen, chances = whole(1, 3, 3, 3, 3, 2, 1, 1), [[0, 2], [2, 1], [0, 1]], [[0.5, 0.4], [0.9, 0.01], [0.5, 0.5]]
    rows = np.arange(12.0).reshape(6, 2)

    def positions() -> np.ndarray:
        """The choices of each expert; their order within an expert is not defined."""
        order = utils._assign_pos(whole(0, 2, 2, 1, 0, 1), whole(2, 4, 6)).numpy()
        return np.sort(order.reshape(3, 2), axis=1)

    def routed() -> np.ndarray:
        """The second expert is dropped where twice its weight is smaller than a given number."""
        values, numbers = paddle.to_tensor(chances), paddle.to_tensor([0.1, 0.1, 0.2])
        return utils._random_routing(paddle.to_tensor(chosen, dtype="int64"), values, numbers).numpy()

    def combined() -> np.ndarray:
        index = paddle.to_tensor([[0, 3], [1, 4], [2, 5]], dtype="int32")
        return moe_combine(paddle.to_tensor(rows, dtype="float32"), paddle.to_tensor([[0.25, 0.75]] * 3), index).numpy()

    after = 0.25 * rows[:3] + 0.75 * rows[3:]
    spoiled = [[0, 2], [2, 1], [0, -1]]
    return {
        "number_count": Operator(lambda: utils._number_count(gates, 4).numpy(), np.array([0, 3, 1, 4]), np.array([0, 3, 2, 4])),
        "assign_pos": Operator(positions, np.array([[0, 4], [3, 5], [1, 2]]), np.array([[0, 4], [1, 2], [3, 5]])),
        "limit_by_capacity": Operator(
            lambda: utils._limit_by_capacity(whole(1, 2, 2, 8, 3, 6), whole(5, 5, 5), 2).numpy(),
            np.array([1, 2, 2, 4, 3, 3]),
            np.array([1, 2, 2, 5, 3, 3]),
        ),
        "prune_gate_by_capacity": Operator(
            lambda: np.sort(utils._prune_gate_by_capacity(gates, whole(0, 3, 1, 3), 4, 1).numpy()),
            np.array([-1, 1, 1, 1, 2, 3, 3, 3]),
            np.array([1, 1, 1, 2, 3, 3, 3, 3]),
        ),
        "random_routing": Operator(routed, np.array([[0, 2], [2, -1], [0, 1]]), np.array(spoiled)),
        "moe_combine": Operator(combined, after, after[::-1]),
    }


def row_of_operator(rows: Table, name: str, operator: Operator, device: str) -> bool:
    """A row; whether the values are right. Where the device lacks the operator there are none, which counts as right."""
    got = _computed(rows, name, device, name, operator.call)
    if got is not None:
        rows.equal(name, got, operator.expected, control=operator.wrong)
    return got is None or np.array_equal(got, operator.expected)


def _computed(rows: Table, case: str, device: str, operator: str, call: Callable[[], np.ndarray]) -> np.ndarray | None:
    """What the call returns. None after a row: skipped where the device lacks the operator, red for an undeclared error."""
    if lacking := refusal(device, operator):
        rows.skip(case, lacking.format_reason())
        return None
    try:
        return call()
    except Exception as error:  # of any kind: the row is red
        undeclared = format_undeclared(f"{type(error).__name__}: {first_line(error)}", device, operator)
        rows.equal(case, undeclared, "values", control="another error")
        return None


# ------------------------------------------------------------------------------------------------- paddle.incubate's layer

GATES = ("naive", "gshard", "switch")


def linear_experts(count: int = EXPERTS) -> nn.LayerList:
    """Linear experts, with the same weights in every process."""
    made = nn.LayerList([nn.Linear(HIDDEN, HIDDEN) for _ in range(count)])
    for number, expert in enumerate(made):
        drawn = np.random.default_rng([number, 43]).standard_normal((HIDDEN, HIDDEN)).astype("float32")
        expert.weight.set_value(paddle.to_tensor(drawn))
    return made


def gate_weight() -> np.ndarray:
    """The weight of every gate of this module, [HIDDEN, EXPERTS]."""
    return np.random.default_rng(47).standard_normal((HIDDEN, EXPERTS)).astype("float32")


def incubate_layer(kind: str) -> nn.Layer:
    """paddle.incubate.distributed.models.moe.MoELayer with this gate of GATES, in evaluation: without random choices."""
    from paddle.incubate.distributed.models.moe import GShardGate, MoELayer, NaiveGate, SwitchGate

    made = {
        "naive": lambda: NaiveGate(HIDDEN, EXPERTS, 1, topk=2),
        "gshard": lambda: GShardGate(HIDDEN, EXPERTS, 1, random_routing=False),
        "switch": lambda: SwitchGate(HIDDEN, EXPERTS, 1),
    }
    layer = MoELayer(HIDDEN, linear_experts(), gate=made[kind]())
    layer.gate.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    layer.eval()
    return layer


def logits_layer(x: np.ndarray, kind: str) -> np.ndarray:
    """What this layer computes by its source: the outputs of linear experts, weighted by logits, not by probabilities.

    x: [tokens, hidden]. The switch gate has one expert, and weights it by its probability.
    """
    k = 1 if kind == "switch" else 2
    logits = x @ gate_weight().astype("float64")
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(reference.softmax(logits) if k == 1 else logits, chosen, axis=1)
    maps = np.stack([each.weight.numpy() for each in linear_experts()]).astype("float64")
    return np.einsum("tk,th,tkho->to", weights, x, maps[chosen])


def output_of(block: nn.Layer, x: np.ndarray) -> np.ndarray:
    """The output of a block or layer for tokens [tokens, hidden], which it gets as one sequence."""
    result = block(paddle.to_tensor(x[None].astype("float32")))
    return (result[0] if isinstance(result, tuple) else result).numpy()[0]


def on_two_ranks(x: np.ndarray, kind: str) -> np.ndarray:
    """On each of two ranks: the output of paddle.incubate's layer for x [tokens, hidden], with two experts on each rank."""
    from paddle.incubate.distributed.models.moe import MoELayer

    dist.init_parallel_env()
    first, every = 2 * dist.get_rank(), list(linear_experts())
    layer = MoELayer(
        HIDDEN, nn.LayerList(every[first : first + 2]), gate={"type": kind, "top_k": 2}, moe_group=dist.new_group([0, 1])
    )
    layer.gate.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    layer.eval()
    return output_of(layer, x)


def row_of_layer(rows: Table, kind: str, device: str, x: np.ndarray, bound: float) -> None:
    """A row: the layer with a gate of GATES, for tokens [tokens, hidden]. bound: a share of the largest value."""
    got = _computed(rows, kind, device, "number_count", lambda: output_of(incubate_layer(kind), x))  # each layer counts first
    if got is not None:
        want = logits_layer(x, kind)
        scale = np.abs(want).max()
        rows.close(kind, got / scale, want / scale, atol=bound, control=np.roll(want, 1, axis=0) / scale)


def row_of_two_ranks(rows: Table, device: str, bound: float) -> None:
    """A row: the layer with a naive gate and two experts on each of two ranks. bound: a share of the largest value."""
    x = np.random.default_rng(59).standard_normal((3, HIDDEN)).astype("float32")
    case, needed = "naive, two ranks", "global_scatter"
    if lacking := refusal(device, needed):
        rows.skip(case, lacking.format_reason())
        return
    want = logits_layer(x, "naive")
    scale = np.abs(want).max()
    try:
        got = ranks.run(on_two_ranks, 2, x, "naive", device=device)
        outcome = "as in one process" if all(np.abs(each - want).max() < bound * scale for each in got) else "other values"
    except ranks.RanksFailed as error:
        outcome = format_undeclared(", ".join(sorted({report.reason for report in error.reports})), device, needed)
    rows.equal(case, outcome, "as in one process", control="other values")
