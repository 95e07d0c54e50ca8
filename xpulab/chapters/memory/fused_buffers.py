"""Data-parallel steps whose gradients live in one buffer, which is sent while the backward pass goes on, or one by one.

Paddle's buffers are paddle.distributed.fleet.utils.tensor_fusion_helper.FusedCommBuffer: hybrid parallel training of fleet
makes them (sharding_configs: comm_overlap; pp_configs: dp_comm_overlap, sharding_comm_overlap). Paddle 3.3.1 lists
GPU, NPU and XPU in its table of alignments; on a CPU and on simulated cards these functions add their own row. Not run on a
GPU or XPU yet.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod
from itertools import pairwise
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_storage import ParamStorage
from paddle.distributed.fleet.utils import tensor_fusion_helper as helper

from xpulab.checks.table import Table
from xpulab.messages import N_

ALIGNMENT = 256
"""Bytes: the slot of each gradient starts at a multiple of it."""

SIZES = ((5, 7), (7,), (7, 33), (33,), (33, 3), (3,))
"""Shapes of the parameters; most are no multiple of the alignment."""

FIRST_BUFFER = 2
"""How many parameters the first of two buffers holds; the second buffer holds the others."""

ROWS = 4


@dataclass(frozen=True)
class Slot:
    """Where a gradient is in its buffer, in bytes from the beginning."""

    start: int
    size: int


@dataclass(frozen=True)
class Steps:
    """What a rank found.

    gradients: of each step, a list of arrays in the order of the parameters. weights: after the last step.
    slots: of the gradients in each fused buffer, in the order of its parameters. buffer_bytes: of each fused buffer.
    weight_slots: of the weights in each fused buffer of weights; empty where weights are not fused.
    events: of the last backward pass, in order: ("ready", number of the parameter) and ("sent", bytes).
    """

    gradients: list[list[np.ndarray]]
    weights: list[np.ndarray]
    slots: list[list[Slot]]
    buffer_bytes: list[int]
    weight_slots: list[list[Slot]]
    events: list[tuple[str, int]]


WAYS: dict[str, dict[str, bool]] = {
    "one by one": {},
    "fused": {"release_grads": False},
    "released": {"release_grads": True},
    "weights too": {"fuse_param": True},
}
"""By name the options of Paddle's buffers.

one by one: each gradient is sent after the backward pass. fused: two buffers hold all gradients, and the sending of a buffer
starts when the last of its gradients is ready. released: the same, but the buffers exist during the backward pass only.
weights too: two more buffers hold all weights, and for the optimizer each of them is one weight."""


def why_not(device: str, cards: int) -> str:
    """Why fused buffers cannot be tried on this device, or an empty text."""
    return "" if device == "cpu" or cards >= 2 else N_("it needs two cards")


def steps_of(variants: Sequence[tuple[str, int]], count: int, seed: int) -> list[Steps]:
    """On a rank: `count` steps of SGD for each variant, which is a name of WAYS and a number of micro-batches."""
    _round_alike_everywhere()
    dist.init_parallel_env()
    let_buffers_be_here()
    events: list[tuple[str, int]] = []
    real = dist.all_reduce

    def all_reduce(tensor: Any, *given: Any, **named: Any) -> Any:
        events.append(("sent", _bytes(tensor)))
        return real(tensor, *given, **named)

    dist.all_reduce = all_reduce
    try:
        return [_steps(how, micro_batches, count, seed, events) for how, micro_batches in variants]
    finally:
        dist.all_reduce = real


def _round_alike_everywhere() -> None:
    """Let MKL round a number in the same way wherever it is in its array: in this process, before its first product.

    With AVX2 a step of SGD is one rounding a number (a fused multiply and add), but two for the last numbers of an array, which
    fill no register: a weight gets other bits in a buffer than alone. Measured with Paddle 3.3.1; on a card it changes nothing.
    """
    os.environ.pop("MKL_DEBUG_CPU_TYPE", None)
    os.environ["MKL_CBWR"] = "COMPATIBLE"


def let_buffers_be_here() -> None:
    """Add an alignment for the CPU and for simulated cards; on a CPU copy weights into their buffer directly.

    Paddle 3.3.1 copies a weight to the CPU and frees it, which on a CPU frees the copy too. It does nothing on other devices.
    """
    if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu():
        return
    for name in ("unknown", "sim"):  # "unknown": what it calls a CPU
        helper.alignment.setdefault(name, ALIGNMENT)
    if paddle.get_device() == "cpu":
        storage: Any = ParamStorage
        storage.add_rank_params = partialmethod(storage.add_rank_params, convert_gpu=False)


def _steps(how: str, micro_batches: int, count: int, seed: int, events: list[tuple[str, int]]) -> Steps:
    parameters = _new_parameters(seed)
    for number, each in enumerate(parameters):
        each._register_backward_hook(lambda *_, number=number: events.append(("ready", number)))
    parts = [] if how == "one by one" else [parameters[:FIRST_BUFFER], parameters[FIRST_BUFFER:]]
    buffers = [_new_buffer(index, part, micro_batches, WAYS[how]) for index, part in enumerate(parts)]
    of_weights = [buffer.param_storage for buffer in buffers if buffer.param_storage is not None]
    optimizer = paddle.optimizer.SGD(0.1, parameters=of_weights or parameters)
    gradients, slots, sizes = [], [], []
    for step in range(count):
        for micro_batch in range(micro_batches):
            events.clear()
            _backward(parameters, [seed, step, micro_batch, dist.get_rank()], micro_batches)
        _join(parameters, buffers)
        gradients.append([each.grad.numpy().copy() for each in parameters])
        slots = [_slots([each.grad for each in part], buffer.grad_storage) for part, buffer in zip(parts, buffers, strict=True)]
        sizes = [_bytes(buffer.grad_storage) for buffer in buffers]
        optimizer.step()
        _clear(optimizer, buffers)
    weight_slots = [_slots(part, storage) for part, storage in zip(parts, of_weights, strict=False)]
    return Steps(gradients, [each.numpy() for each in parameters], slots, sizes, weight_slots, list(events))


def _new_buffer(index: int, parameters: list[Any], micro_batches: int, options: dict[str, bool]) -> Any:
    """A buffer for the gradients of these parameters, which starts to send when all of them are ready."""
    buffer = helper.FusedCommBuffer(
        index,
        parameters,
        dist.collective._get_default_group(),
        acc_steps=micro_batches,
        act=helper.HOOK_ACTION.ALL_REDUCE,
        **options,
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


def _backward(parameters: list[Any], seed: list[int], micro_batches: int) -> None:
    """Add the gradients of one micro-batch, which follows from the seed."""
    hidden = paddle.to_tensor(np.random.default_rng(seed).standard_normal((ROWS, SIZES[0][0]), "float32"))
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        hidden = paddle.tanh(hidden @ weight + bias)
    (hidden.square().mean() / micro_batches).backward()


@paddle.no_grad()
def _join(parameters: list[Any], buffers: list[Any]) -> None:
    """Make each gradient the mean over the ranks."""
    for buffer in buffers:
        buffer.scale_grads()  # waits for the message that the last gradient started, and divides
    for each in [] if buffers else parameters:
        dist.all_reduce(each.grad)
        each.grad.scale_(1 / dist.get_world_size())


def _clear(optimizer: Any, buffers: list[Any]) -> None:
    if not buffers or buffers[0]._release_grads:
        optimizer.clear_grad(set_to_zero=False)
        for buffer in buffers:
            buffer._clear_grad_storage()
        return
    for buffer in buffers:
        buffer.grad_storage.zero_()  # the gradients stay views of it


def _slots(tensors: list[Any], storage: Any) -> list[Slot]:
    start = storage.data_ptr()
    return [Slot(each.data_ptr() - start, _bytes(each)) for each in tensors]


def _bytes(tensor: Any) -> int:
    return int(tensor.size) * tensor.element_size()


def rows_of_steps(rows: Table, case: str, found: Steps, expected: Steps) -> None:
    """Rows: the gradients of each step and the weights are those of gradients that are sent one by one."""
    for step, values in enumerate(found.gradients):
        wrong = [value * 2 for value in values]
        rows.bitwise(f"{case}, gradients of step {step}", values, expected.gradients[step], control=wrong)
    wrong = [value * 2 for value in found.weights]
    rows.bitwise(f"{case}, weights", found.weights, expected.weights, control=wrong)


def rows_of_slots(rows: Table, case: str, found: Steps) -> None:
    """Rows: no two slots of a buffer overlap, and none ends behind the buffer."""
    of_buffers = [*found.slots, *found.weight_slots]  # a buffer of weights is as large as that of their gradients
    for number, slots in enumerate(of_buffers):
        size = found.buffer_bytes[number % len(found.slots)]
        moved = [Slot(slot.start // 2, slot.size) for slot in slots]
        rows.equal(f"{case}, buffer {number}", overlaps(slots), 0, control=max(1, overlaps(moved)))
        last = max(slot.start + slot.size for slot in slots)
        rows.below(f"{case}, buffer {number}, end", last, size + 1, control=last + size)


def row_of_overlap(rows: Table, case: str, found: Steps) -> None:
    """Row: the message of the last layers starts before the first layers' gradients are ready."""
    order, sizes = [f"{kind} {what}" for kind, what in found.events], found.buffer_bytes
    ready = [f"ready {number}" for number in range(len(SIZES) - 1, -1, -1)]
    early, late = ready[: len(SIZES) - FIRST_BUFFER], ready[len(SIZES) - FIRST_BUFFER :]
    expected = [*early, f"sent {sizes[1]}", *late, f"sent {sizes[0]}"]
    rows.equal(case, order, expected, control=[*early, *late, f"sent {sizes[1]}", f"sent {sizes[0]}"])


def overlaps(slots: list[Slot]) -> int:
    """How many bytes belong to more than one slot."""
    ordered = sorted(slots, key=lambda each: each.start)
    return sum(max(0, left.start + left.size - right.start) for left, right in pairwise(ordered))
