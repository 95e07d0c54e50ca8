"""Stages that pass several tensors to the next one.

    exact, found = stage_forms.alone(form), stage_forms.on_two_ranks(form, here.name)     # form: one of FORMS

Of two stages the first gives its hidden state and, as a model of PaddleNLP does, what the next one needs too: another hidden
state, a mask or the positions. The mask and the positions have no gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet
from paddle.distributed.auto_parallel.pipelining import schedules
from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage

from xpulab import ranks

RANKS, ROWS, WIDTH, MICRO_BATCHES = 2, 4, 8, 2

FORMS = ("two hidden states", "a mask and positions", "a mask that has a gradient", "mask and positions as keywords")
"""What the first stage passes to the second; in the last one both stages get the rest from the schedule."""


class Giving(nn.Layer):
    """The first stage: a linear layer, and what it passes beside its output."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.weight = _weight(self, 1)

    def forward(self, x: Any, mask: Any = None, positions: Any = None) -> Any:
        hidden = paddle.matmul(x, self.weight)
        if self.form == "mask and positions as keywords":
            return hidden
        if self.form == "two hidden states":
            return hidden, paddle.tanh(hidden)
        mask, positions = mask_and_positions(x)
        if self.form == "a mask and positions":
            return hidden, mask, positions
        mask.stop_gradient = False
        return hidden, mask


class Taking(nn.Layer):
    """The second stage: a linear layer, multiplied by what else it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = _weight(self, 2)

    def forward(self, hidden: Any, mask: Any = None, positions: Any = None) -> Any:
        output = paddle.matmul(hidden, self.weight)
        output = output if mask is None else output * mask
        return output if positions is None else output * (1 + positions.astype("float32").unsqueeze(1))


def _weight(layer: nn.Layer, seed: int) -> Any:
    weight = layer.create_parameter([WIDTH, WIDTH])
    weight.set_value(np.random.default_rng(seed).normal(0, 0.5, [WIDTH, WIDTH]).astype("float32"))
    return weight


def mask_and_positions(x: Any) -> tuple[Any, Any]:
    """A mask of the shape of x, and a position for each row of a micro-batch."""
    return (x > 0).astype("float32"), paddle.arange(x.shape[0]) % (ROWS // MICRO_BATCHES)


def _batch(form: str) -> tuple[Any, Any, dict[str, Any]]:
    """Rows, target, and what both stages get as keywords."""
    rng = np.random.default_rng(3)
    x, target = (paddle.to_tensor(rng.normal(0, 1, [ROWS, WIDTH]).astype("float32")) for _ in range(2))
    keywords = dict(zip(("mask", "positions"), mask_and_positions(x), strict=True))
    return x, target, keywords if form == FORMS[-1] else {}


def _square(output: Any, target: Any) -> Any:
    return ((output - target) ** 2).mean()


def alone(form: str) -> np.ndarray:
    """In one process: the sum of the losses of the micro-batches, then the gradients of both weights, flat."""
    (x, target, keywords), first, second, losses = _batch(form), Giving(form), Taking(), []
    size = ROWS // MICRO_BATCHES
    for rows in (slice(start, start + size) for start in range(0, ROWS, size)):
        given = first(x[rows])
        more = {key: value[rows] for key, value in keywords.items()}
        loss = _square(second(*given) if isinstance(given, tuple) else second(given, **more), target[rows])
        loss.backward()
        losses.append(float(loss))
    return np.concatenate([[sum(losses)], *(stage.weight.grad.numpy().ravel() for stage in (first, second))])


def _on_rank(form: str) -> np.ndarray:
    """On a rank: the sum of the losses, 0 on the first one, and the gradient of its weight."""
    dist.init_parallel_env()
    schedules.logger.setLevel("WARNING")
    rank, group = dist.get_rank(), dist.new_group(list(range(RANKS)))
    fleet.auto.set_mesh(dist.ProcessMesh(list(range(RANKS)), dim_names=["pp"]))
    stage = PipelineStage(Taking() if rank else Giving(form), rank, RANKS, group=group)
    schedule = schedules.ScheduleFThenB(stage, n_microbatches=MICRO_BATCHES, loss_fn=_square)
    x, target, keywords = _batch(form)
    losses: list[Any] = []
    schedule.step(x, target=target, losses=losses, **keywords)
    return np.concatenate([[sum(float(loss) for loss in losses)], stage.sublayer.weight.grad.numpy().ravel()])


def on_two_ranks(form: str, device: str) -> np.ndarray:
    """What `alone` returns, from two stages; zeros when a rank raised an error."""
    try:
        first, second = ranks.run(_on_rank, RANKS, form, device=device, time_limit=60)
    except ranks.RanksFailed:
        return np.zeros(1 + 2 * WIDTH * WIDTH)
    return np.concatenate([second[:1], first[1:], second[1:]])
