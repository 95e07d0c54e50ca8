"""The parts of a mixture-of-experts layer that chapter 14 does not show: an expert, all-to-all with gradients, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab.reference import moe as reference
from xpulab.reference.moe import Weights

GAP = 0.1
"""How far the logits of a token are from each other in tests, so that rounding does not change its experts."""


class Expert(nn.Layer):
    """silu(x @ up) @ down, for tokens [tokens, hidden]. No token at all gives [0, hidden]."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner, bias_attr=False)
        self.down = nn.Linear(inner, hidden, bias_attr=False)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.down(F.silu(self.up(x)))


def exchange(rows: paddle.Tensor, sent: Sequence[int], received: Sequence[int], group: Any = None) -> paddle.Tensor:
    """All-to-all: rank r gets the r-th part of the rows of every rank, in the order of the ranks.

    rows: [sum(sent), ...], in the order of the ranks that they go to. sent, received: how many rows go to and come from each
    rank. group: the ranks, all by default; each of them must call it. gloo has no all-to-all: on the CPU every rank gathers
    everything and keeps its parts.
    """
    if dist.get_world_size(group) == 1:
        return rows.clone()  # Paddle has no communicator for one rank
    if paddle.get_device() == "cpu":  # not rows.place: an empty tensor of a card may be on the CPU
        return _gathered_and_kept(rows, sent, received, group)
    out = paddle.empty([sum(received), *rows.shape[1:]], dtype=rows.dtype)
    if rows.size == 0:
        rows = paddle.empty(rows.shape, rows.dtype)  # the result of other operators without elements may be on the CPU
    dist.alltoall_single(out, rows.contiguous(), in_split_sizes=list(sent), out_split_sizes=list(received), group=group)
    return out


def _gathered_and_kept(rows: paddle.Tensor, sent: Sequence[int], received: Sequence[int], group: Any) -> paddle.Tensor:
    rank = dist.get_rank(group)
    everyone: list[paddle.Tensor] = []
    dist.all_gather(everyone, paddle.to_tensor([sent], dtype="int64"), group=group)
    splits = paddle.concat(everyone).numpy()  # [senders, receivers]
    longest = max(1, int(splits.sum(axis=1).max()))  # gloo cannot gather tensors of different lengths, nor empty ones
    padded = paddle.concat([rows, paddle.zeros([longest - len(rows), *rows.shape[1:]], rows.dtype)])
    gathered: list[paddle.Tensor] = []
    dist.all_gather(gathered, padded, group=group)
    starts = splits.cumsum(axis=1) - splits
    ends = starts[:, rank] + received
    return paddle.concat([each[int(a) : int(b)] for each, a, b in zip(gathered, starts[:, rank], ends, strict=True)])


class AllToAll(paddle.autograd.PyLayer):
    """exchange() with a gradient: what came from a rank goes back to it."""

    @staticmethod
    def forward(
        ctx: Any, rows: paddle.Tensor, sent: Sequence[int], received: Sequence[int], group: Any = None
    ) -> paddle.Tensor:
        ctx.splits, ctx.group = (sent, received), group
        return exchange(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        sent, received = ctx.splits
        return exchange(gradient, received, sent, ctx.group)


def random_weights(hidden: int, inner: int, experts: int, seed: int) -> Weights:
    """Weights of a layer, drawn in float32 such that outputs are about as large as inputs."""
    draw = np.random.default_rng([seed, 31])

    def drawn(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) * 1.5 / shape[-2] ** 0.5).astype("float32")

    return Weights(drawn(hidden, experts), drawn(experts, hidden, inner), drawn(experts, inner, hidden))


def clear_tokens(count: int, gate: np.ndarray, seed: int) -> np.ndarray:
    """Tokens [count, hidden] in float32 whose logits under this gate [hidden, experts] are at least GAP apart."""
    draw = np.random.default_rng([seed, 37])
    chosen: list[np.ndarray] = []
    while len(chosen) < count:
        token = draw.standard_normal(len(gate)).astype("float32")
        if np.diff(np.sort(token.astype("float64") @ gate)).min() > GAP:
            chosen.append(token)
    return np.array(chosen, dtype="float32").reshape(count, len(gate))


def set_weights(gate: nn.Linear, experts: Iterable[Expert], weights: Weights, first: int = 0) -> None:
    """Give a gate and experts these weights; `first` is the number of the first of these experts."""
    gate.weight.set_value(paddle.to_tensor(weights.gate))
    for number, expert in enumerate(experts, first):
        expert.up.weight.set_value(paddle.to_tensor(weights.up[number]))
        expert.down.weight.set_value(paddle.to_tensor(weights.down[number]))


def gradients_of(gate: nn.Linear, experts: Iterable[Expert]) -> Weights:
    """The gradients of a gate and experts. Raises ValueError for a parameter that has none."""
    parameters = [gate.weight, *(each.weight for expert in experts for each in (expert.up, expert.down))]
    found = [each.grad.numpy() for each in parameters if each.grad is not None]
    if len(found) < len(parameters):
        raise ValueError(f"no gradient reached {', '.join(each.name for each in parameters if each.grad is None)}")
    of_gate, *others = found
    return Weights(of_gate, np.stack(others[::2]), np.stack(others[1::2]))


def joined(of_ranks: Sequence[Weights]) -> Weights:
    """The gradients of a layer whose experts are on several ranks, of which each has the same gradient of the gate."""
    up, down = (np.concatenate([getattr(each, name) for each in of_ranks]) for name in ("up", "down"))
    return Weights(of_ranks[0].gate, up, down)


def in_numpy(k: int, factor: float, x: np.ndarray, weights: Weights, g: np.ndarray) -> dict[str, np.ndarray]:
    """By name what a layer gives for tokens x [tokens, hidden], in double precision: output, auxiliary loss, gradients.

    g: the gradient of the output. Half of the auxiliary loss is in the loss.
    """
    x, g = x.astype("float64"), g.astype("float64")
    weights = Weights(*(value.astype("float64") for value in (weights.gate, weights.up, weights.down)))
    capacity = reference.capacity_of(len(x), weights.gate.shape[1], k, factor)
    output, routing = reference.forward(x, weights, k, capacity)
    of_x, of_weights = reference.gradients(x, weights, k, capacity, g, of_auxiliary=0.5)
    auxiliary = np.array(reference.auxiliary_loss(routing))
    return {"output": output, "auxiliary loss": auxiliary, "tokens": of_x, **asdict(of_weights)}


def four_kinds(count: int, hidden: int, seed: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Tokens [count, hidden] of four kinds, and what a layer must learn to make of them: a matrix for each kind.

    All tokens have a common part, so that an untrained gate sends most of them to the same expert.
    """
    draw = np.random.default_rng([seed, 41])
    centers, maps = draw.standard_normal((4, hidden)), draw.standard_normal((4, hidden, hidden)) / hidden**0.5
    kind = draw.integers(0, 4, count)
    x = 1 + centers[kind] + 0.5 * draw.standard_normal((count, hidden))
    y = np.einsum("th,tho->to", x, maps[kind])
    return paddle.to_tensor(x.astype("float32"), stop_gradient=False), paddle.to_tensor(y.astype("float32"))
