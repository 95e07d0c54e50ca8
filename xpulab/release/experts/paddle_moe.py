"""The layer for experts of Paddle, paddle.incubate.distributed.models.moe: what it computes.

Offered: GATES, incubate_layer, logits_layer, output_of, row_of_layer, row_of_two_ranks, gate_weight and maps.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from xpulab import ranks
from xpulab.chapters.moe.paddle_operators import computed
from xpulab.checks.table import Table
from xpulab.records.refusals import format_undeclared, refusal
from xpulab.reference.operators import softmax

HIDDEN, EXPERTS = 16, 4

GATES = ("naive", "gshard", "switch")


def maps() -> np.ndarray:
    """The weights of the linear experts, [EXPERTS, HIDDEN, HIDDEN], the same in every process."""
    drawn = [np.random.default_rng([number, 43]).standard_normal((HIDDEN, HIDDEN)) for number in range(EXPERTS)]
    return np.stack(drawn).astype("float32")


def linear_experts() -> nn.LayerList:
    """Linear experts with these weights."""
    made = nn.LayerList([nn.Linear(HIDDEN, HIDDEN) for _ in range(EXPERTS)])
    for expert, weight in zip(made, maps(), strict=True):
        expert.weight.set_value(paddle.to_tensor(weight))
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
    weights = np.take_along_axis(softmax(logits) if k == 1 else logits, chosen, axis=1)
    return np.einsum("tk,th,tkho->to", weights, x, maps().astype("float64")[chosen])


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
    got = computed(rows, kind, device, "number_count", lambda: output_of(incubate_layer(kind), x))  # each layer counts first
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
