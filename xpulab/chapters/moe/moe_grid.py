"""A mixture-of-experts layer on a grid of ranks: experts on some ranks, and each expert cut over others (tensor parallelism).

Each row of the grid has its own tokens and its own experts, and every rank of a row holds a part of each of these experts. So
tokens travel between the rows, within a column, and the parts of an expert add up within a row.

    check.grid("moe.expert-and-tensor-parallel", cut_experts(), on_ranks(...), add_rows(...), level=level, seed=seed, means=...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from xpulab import ranks
from xpulab.chapters.moe.moe_layer import Expert, doubled, gradients_of, set_weights
from xpulab.checks.compared import Compared, add_row, with_one_scaled
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table
from xpulab.reference import moe as reference
from xpulab.reference.moe import Weights

LAYOUTS = {"an expert on neighbours": [[0, 1], [2, 3]], "an expert on every second rank": [[0, 2], [1, 3]]}
"""By name the grid: two rows of two ranks."""

TOKENS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "any": lambda order: np.full(len(order), True),
    "all to one expert": lambda order: order[:, 0] == 2,
    "an expert without": lambda order: (order[:, :3] != 3).all(axis=1),
}
"""By name which tokens are taken, from the numbers of the experts of each, the likeliest first, [tokens, experts]."""

Stepped = tuple[np.ndarray, np.ndarray, Weights]
"""The output, the gradient of the tokens, and the gradients of the gate and of the rank's parts of its experts."""


class CopyToGroup(paddle.autograd.PyLayer):
    """The tensor itself, whose gradient is added over the group: c_identity of Paddle, which has no kernel for the CPU."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, group: Any) -> paddle.Tensor:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return _added(gradient, ctx.group)


class AddInGroup(paddle.autograd.PyLayer):
    """The sum over the group, whose gradient every rank has already: mp_allreduce of Paddle."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, group: Any) -> paddle.Tensor:
        return _added(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return gradient.clone()


def _added(x: paddle.Tensor, group: Any) -> paddle.Tensor:
    total = x.clone()
    dist.all_reduce(total, group=group)
    return total


class CutExpert(Expert):
    """A part of an Expert, whose inner columns are cut over the ranks of a group. Gives the output of the whole expert."""

    def __init__(self, hidden: int, inner: int, group: Any) -> None:
        super().__init__(hidden, inner // group.nranks)
        self.group = group

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if len(x) == 0:  # on all ranks of the group: there is nothing to add, and backends refuse to add nothing
            return super().forward(x)
        return AddInGroup.apply(super().forward(CopyToGroup.apply(x, self.group)), self.group)


def cut_experts() -> Grid:
    """The cases: layouts of four ranks, experts for a token, capacities, and tokens."""
    return Grid({"layout": LAYOUTS, "k": (2, 1, 3), "factor": (4.0, 0.75), "tokens": TOKENS, "count": (24, 8)})


def on_ranks(
    new_layer: Callable[[int, float, Any], Any], weights: Weights, pool: np.ndarray, device: str
) -> Callable[[Sequence[Case]], list[dict[str, np.ndarray]]]:
    """What check.grid takes as `run`: of each case by name what four ranks have together, in one start of them for a layout.

    new_layer: from k, factor and the group of ranks between which tokens travel to a layer with `gate` and `experts`.
    weights: of the whole layer. pool: tokens [tokens, hidden], of which those of a case are taken.
    """

    def run(cases: Sequence[Case]) -> list[dict[str, np.ndarray]]:
        found: dict[str, dict[str, np.ndarray]] = {}
        for layout, ranks_of_rows in LAYOUTS.items():
            of_layout = [case for case in cases if case.labels["layout"] == layout]
            own = {case.name: (case.k, case.factor, tokens_of(case, weights, pool)) for case in of_layout}
            if own:
                answers = ranks.run(_steps, 4, new_layer, ranks_of_rows, weights, own, device=device)
                found.update({name: joined([answer[name] for answer in answers], ranks_of_rows) for name in own})
        return [found[case.name] for case in cases]

    return run


def tokens_of(case: Case, weights: Weights, pool: np.ndarray) -> np.ndarray:
    """The tokens of a case, of both rows of ranks, [tokens, hidden]."""
    order = np.argsort(-(pool @ weights.gate), axis=1)
    return pool[case.tokens(order)][: case.count]


def add_rows(weights: Weights, pool: np.ndarray, bound: float) -> Callable[[Table, Case, dict[str, np.ndarray]], None]:
    """What check.grid takes as `add_row`: output and gradients. bound: a share of the largest of each."""

    def add_case(rows: Table, case: Case, got: dict[str, np.ndarray]) -> None:
        parts = np.split(tokens_of(case, weights, pool), 2)
        of_parts = [_in_numpy(case, part, doubled(weights)) for part in parts]
        right = {}
        for name in got:
            want: Any = (np.concatenate if name in ("output", "tokens") else sum)([part[name] for part in of_parts])
            alike = {"output": 2, "tokens": 2, "gate": 4}.get(name)  # that many ranks have it
            right[name] = np.stack([want] * alike) if alike else want
        bounds = {name: bound * np.abs(want).max() for name, want in right.items()}
        add_row(rows, case, Compared(got, right, bounds, with_one_scaled(right, 0.99)))

    return add_case


def _in_numpy(case: Case, x: np.ndarray, weights: Weights) -> dict[str, np.ndarray]:
    """Output and gradients of one row of ranks in double precision; the loss is their sum and half the auxiliary loss."""
    x = x.astype("float64")
    capacity = reference.capacity_of(len(x), weights.gate.shape[1], case.k, case.factor)
    output, _ = reference.forward(x, weights, case.k, capacity)
    of_x, of_weights = reference.gradients(x, weights, case.k, capacity, np.ones_like(x), 0.5)
    return {"output": output, "tokens": of_x, **asdict(of_weights)}


def _steps(
    new_layer: Callable[[int, float, Any], Any],
    grid: Sequence[Sequence[int]],
    weights: Weights,
    cases: Mapping[str, tuple[int, float, np.ndarray]],
) -> dict[str, Stepped]:
    """On a rank: by case one step of a layer on the grid.

    new_layer: from k, factor and the group of ranks between which tokens travel to a layer with `gate` and `experts`.
    weights: of the whole layer. cases: by name k, factor, and the tokens of all rows.
    """
    dist.init_parallel_env()
    row, column = np.argwhere(np.array(grid) == dist.get_rank())[0]
    of_rows, of_columns = (
        [dist.new_group([int(rank) for rank in ranks]) for ranks in each] for each in (grid, np.transpose(grid))
    )
    within_row, within_column = of_rows[row], of_columns[column]
    hidden, inner = weights.up.shape[1:]
    part = slice(column * inner // len(grid[0]), (column + 1) * inner // len(grid[0]))
    mine = Weights(weights.gate, weights.up[:, :, part], weights.down[:, part])
    found = {}
    for case, (k, factor, tokens) in cases.items():
        layer = new_layer(k, factor, within_column)
        local = len(layer.experts)
        layer.experts = nn.LayerList([CutExpert(hidden, inner, within_row) for _ in range(local)])
        set_weights(layer.gate, layer.experts, mine, first=row * local)
        x = paddle.to_tensor(np.split(tokens, len(grid))[row], stop_gradient=False)
        output, auxiliary = layer(x)
        (output.sum() + 0.5 * auxiliary).backward()
        dist.all_reduce(layer.gate.weight.grad, group=within_column)  # in a row all have the same
        assert x.grad is not None
        found[case] = output.numpy(), x.grad.numpy(), gradients_of(layer.gate, layer.experts)
    return found


def joined(of_ranks: Sequence[Stepped], grid: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """By name what the ranks have together; what all ranks of a row have alike is [columns, ...]."""
    columns = [[of_ranks[rank] for rank in ranks] for ranks in np.transpose(grid)]
    gates = np.stack([each[2].gate for each in of_ranks])

    def of_rows(read: Callable[[Stepped], np.ndarray]) -> list[np.ndarray]:
        return [np.concatenate([read(each) for each in ranks]) for ranks in columns]

    return {
        "output": np.stack(of_rows(lambda each: each[0])),
        "tokens": np.stack(of_rows(lambda each: each[1])),
        "gate": gates,
        "up": np.concatenate(of_rows(lambda each: each[2].up), axis=2),
        "down": np.concatenate(of_rows(lambda each: each[2].down), axis=1),
    }
