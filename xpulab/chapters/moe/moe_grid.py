"""A mixture-of-experts layer on a grid of ranks: experts on some ranks, and each expert cut over others (tensor parallelism).

Each row of the grid has its own tokens and its own experts, and every rank of a row holds a part of each of these experts. So
tokens travel between the rows, within a column, and the parts of an expert add up within a row.

Offered: LAYOUTS, steps, joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from xpulab.chapters.moe.moe_layer import Expert, gradients_of, set_weights
from xpulab.reference.moe import Weights

LAYOUTS = {"an expert on neighbours": [[0, 1], [2, 3]], "an expert on every second rank": [[0, 2], [1, 3]]}
"""By name the grid: two rows of two ranks."""

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


def steps(
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
