"""A mixture-of-experts layer on a grid of ranks: experts on some ranks, and each expert cut over others (tensor parallelism).

Each row of the grid has its own tokens and its own experts, and every rank of a row holds a part of each of these experts. So
tokens travel between the rows, within a column, and the parts of an expert add up within a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from xpulab import ranks
from xpulab.chapters.moe.moe_layer import Expert, gradients_of, in_numpy, set_weights
from xpulab.checks.compared import Compared, add_row, with_one_scaled
from xpulab.checks.table import Table
from xpulab.reference.moe import Weights

LAYOUTS = {"an expert on neighbours": [[0, 1], [2, 3]], "an expert on every second rank": [[0, 2], [1, 3]]}
"""By name the grid: two rows of two ranks."""

CASES = {"top-2": (2, 4.0), "top-1, dropped": (1, 0.75)}
"""By name k, the experts for a token, and the factor of the capacity."""

NewLayer = Callable[[int, float, Any], Any]
"""From k, factor and the group of ranks between which tokens travel to a layer with `gate` and `experts`."""


def add_rows(rows: Table, new_layer: NewLayer, weights: Weights, tokens: np.ndarray, bound: float, device: str) -> None:
    """A row for each layout, case and rank: output and gradients.

    weights: of the whole layer. tokens: of both rows of ranks, [tokens, hidden]. bound: a share of the largest of each value.
    """
    for layout, grid in LAYOUTS.items():
        answers = ranks.run(_steps, 4, new_layer, grid, weights, tokens, device=device)
        for case, (k, factor) in CASES.items():
            of_rows = [in_numpy(k, factor, part, weights, np.ones_like(part)) for part in np.split(tokens, 2)]
            total = Weights(*(np.sum([row[name] for row in of_rows], axis=0) for name in ("gate", "up", "down")))
            for rank, answer in enumerate(answers):
                row, _ = _place(grid, rank)
                own = {name: of_rows[row][name] for name in ("output", "tokens")}
                right = {**own, **asdict(_part_of(total, grid, rank))}
                bounds = {name: bound * np.abs(value).max() for name, value in {**own, **asdict(total)}.items()}
                compared = Compared(answer[case], right, bounds, with_one_scaled(right, 0.99))
                add_row(rows, f"{layout}, {case}, rank {rank}", compared)


def _place(grid: Sequence[Sequence[int]], rank: int) -> tuple[int, int]:
    """The row and the column of a rank."""
    row, column = np.argwhere(np.array(grid) == rank)[0]
    return int(row), int(column)


def _part_of(whole: Weights, grid: Sequence[Sequence[int]], rank: int) -> Weights:
    """What a rank has of the whole layer: the gate, and of the experts of its row the columns of its column."""
    row, column = _place(grid, rank)
    experts, inner = (np.split(np.arange(count), 2) for count in (len(whole.up), whole.up.shape[2]))
    return Weights(whole.gate, whole.up[experts[row]][:, :, inner[column]], whole.down[experts[row]][:, inner[column]])


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


def _steps(
    new_layer: NewLayer, grid: Sequence[Sequence[int]], weights: Weights, tokens: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """On a rank: by case the output, the gradient of its tokens, and those of the gate and of its parts of experts, by name.

    weights: of the whole layer. tokens: of all rows, [tokens, hidden].
    """
    dist.init_parallel_env()
    row, column = _place(grid, dist.get_rank())
    of_rows, of_columns = ([dist.new_group(list(map(int, ranks))) for ranks in each] for each in (grid, np.transpose(grid)))
    hidden, inner = weights.up.shape[1:]
    found = {}
    for case, (k, factor) in CASES.items():
        layer = new_layer(k, factor, of_columns[column])
        layer.experts = nn.LayerList([CutExpert(hidden, inner, of_rows[row]) for _ in layer.experts])
        set_weights(layer.gate, layer.experts, _part_of(weights, grid, dist.get_rank()))
        x = paddle.to_tensor(np.split(tokens, len(grid))[row], stop_gradient=False)
        output, auxiliary = layer(x)
        (output.sum() + 0.5 * auxiliary).backward()
        dist.all_reduce(layer.gate.weight.grad, group=of_columns[column])  # in a row all have the same
        assert x.grad is not None
        gradients = asdict(gradients_of(layer.gate, layer.experts))
        found[case] = {"output": output.numpy(), "tokens": x.grad.numpy(), **gradients}
    return found
