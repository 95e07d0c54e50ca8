"""Steps of two ranks with accumulated gradients: sent one by one, in fused buffers, and by fleet's sharded optimizer.

Paddle's buffers are paddle.distributed.fleet.utils.tensor_fusion_helper.FusedCommBuffer: hybrid parallel training of fleet
makes them (sharding_configs: comm_overlap; pp_configs: dp_comm_overlap, sharding_comm_overlap). Paddle 3.3.1 lists
GPU, NPU and XPU in its table of alignments; on a CPU and on simulated cards these functions add their own row. Not run on a
GPU or XPU yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
from paddle.distributed.fleet.utils import tensor_fusion_helper as helper

from xpulab.checks.table import Table

ALIGNMENT = 256
"""Bytes: the slot of each gradient starts at a multiple of it."""

SIZES = ((5, 7), (7,), (7, 33), (33,), (33, 3), (3,))
"""Shapes of the parameters; most are no multiple of the alignment."""

FIRST, SECOND = slice(0, 2), slice(2, None)
"""Which parameters each of two buffers holds."""

ROWS = 4


@dataclass(frozen=True)
class Steps:
    """What a rank found.

    gradients: of each step, a list of arrays in the order of the parameters. weights: after the last step.
    events: of the last backward pass, in order: the number of a parameter whose gradient is ready, or "sent".
    """

    gradients: list[list[np.ndarray]]
    weights: list[np.ndarray]
    events: list[int | str]


MICRO_BATCHES = 2


def steps_of(count: int, seed: int) -> tuple[Steps, Steps]:
    """On a rank `count` steps of SGD: with gradients that are sent one by one after the backward pass, and in two buffers.

    The sending of a buffer starts when the last of its gradients is ready.
    """
    dist.init_parallel_env()
    if not paddle.is_compiled_with_cuda() and not paddle.is_compiled_with_xpu():
        for name in ("unknown", "sim"):  # Paddle has no alignment for the CPU, which it calls so, and for simulated cards
            helper.alignment.setdefault(name, ALIGNMENT)
    events: list[int | str] = []
    real = dist.all_reduce

    def all_reduce(*given: Any, **named: Any) -> Any:
        events.append("sent")
        return real(*given, **named)

    dist.all_reduce = all_reduce
    try:
        return _steps((), count, seed, events), _steps((FIRST, SECOND), count, seed, events)
    finally:
        dist.all_reduce = real


def sharded_weights(count: int, seed: int) -> list[np.ndarray]:
    """On a rank: the weights after the same steps with fleet's sharded optimizer, stage 1, which sends after the last part."""
    strategy: Any = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, "sharding_degree": dist.ParallelEnv().world_size}
    strategy.hybrid_configs["sharding_configs"].accumulate_steps = MICRO_BATCHES
    fleet.init(is_collective=True, strategy=strategy)
    parameters = _new_parameters(seed)
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1, parameters=parameters))
    for step in range(count):
        for micro_batch in range(MICRO_BATCHES):
            _backward(parameters, [seed, step, micro_batch, dist.get_rank()])
        optimizer.step()
        optimizer.clear_grad()
    return [each.numpy() for each in parameters]


def _steps(parts: Sequence[slice], count: int, seed: int, events: list[int | str]) -> Steps:
    """parts: of the parameters, each in a buffer; none where gradients are sent one by one."""
    parameters = _new_parameters(seed)
    for number, each in enumerate(parameters):
        each._register_backward_hook(lambda *_, number=number: events.append(number))
    buffers = [_new_buffer(index, parameters[part]) for index, part in enumerate(parts)]
    optimizer = paddle.optimizer.SGD(0.1, parameters=parameters)
    gradients = []
    for step in range(count):
        for micro_batch in range(MICRO_BATCHES):
            events.clear()
            _backward(parameters, [seed, step, micro_batch, dist.get_rank()])
        _join(parameters, buffers)
        gradients.append([each.grad.numpy().copy() for each in parameters])
        optimizer.step()
        for buffer in buffers:
            buffer.grad_storage.zero_()  # the gradients stay views of it
        if not buffers:
            optimizer.clear_grad(set_to_zero=False)
    return Steps(gradients, [each.numpy() for each in parameters], list(events))


def _new_buffer(index: int, parameters: list[Any]) -> Any:
    """A buffer for the gradients of these parameters, which starts to send when all of them are ready."""
    buffer = helper.FusedCommBuffer(
        index,
        parameters,
        dist.collective._get_default_group(),
        acc_steps=MICRO_BATCHES,
        act=helper.HOOK_ACTION.ALL_REDUCE,
        release_grads=False,
    )
    for each in parameters:
        each._register_backward_hook(helper.bw_hook_func(buffer, each))
    return buffer


def _new_parameters(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        paddle.create_parameter(
            shape, "float32", default_initializer=paddle.nn.initializer.Assign(0.3 * rng.standard_normal(shape, "float32"))
        )
        for shape in SIZES
    ]


def _backward(parameters: list[Any], seed: list[int]) -> None:
    """Add the gradients of one micro-batch, which follows from the seed."""
    hidden = paddle.to_tensor(np.random.default_rng(seed).standard_normal((ROWS, SIZES[0][0]), "float32"))
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        hidden = paddle.tanh(hidden @ weight + bias)
    (hidden.square().mean() / MICRO_BATCHES).backward()


@paddle.no_grad()
def _join(parameters: list[Any], buffers: list[Any]) -> None:
    """Make each gradient the mean over the ranks."""
    for buffer in buffers:
        buffer.scale_grads()  # waits for the message that the last gradient started, and divides
    for each in [] if buffers else parameters:
        dist.all_reduce(each.grad)
        each.grad.scale_(1 / dist.get_world_size())


def rows_of_steps(rows: Table, case: str, found: Steps, expected: Steps) -> None:
    """Rows: the gradients of each step and the weights are those of gradients that are sent one by one."""
    steps = {f"gradients of step {step}": (values, expected.gradients[step]) for step, values in enumerate(found.gradients)}
    for name, (values, wanted) in {**steps, "weights": (found.weights, expected.weights)}.items():
        rows.bitwise(f"{case}, {name}", values, wanted, control=[value * 2 for value in values])


def row_of_overlap(rows: Table, case: str, found: Steps) -> None:
    """Row: the message of the last layers starts before the first layers' gradients are ready."""
    ready = list(range(len(SIZES)))
    early, late = ready[SECOND][::-1], ready[FIRST][::-1]
    rows.equal(case, found.events, [*early, "sent", *late, "sent"], control=[*early, *late, "sent", "sent"])
