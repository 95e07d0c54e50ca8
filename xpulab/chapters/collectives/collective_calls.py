"""The calls of collective_cases on ranks: each member calls the collective, and says what it holds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.chapters.collectives import collective_cases
from xpulab.chapters.collectives.collective_cases import STREAMS, STRIDED, Call, calls_of
from xpulab.chapters.shared import cases_on_ranks
from xpulab.checks.grid import Case

GUARD = 77
"""The number before and after a piece of a longer tensor. It must stay."""

UNFILLED = 99
"""The number in a result before the call: memory that was used before may hold the right numbers already."""


def on_ranks(n: int, device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: of each case on n ranks what each member held, as text, or the error that all raised."""

    def in_one_list(case: Case, held: Sequence[list[str]]) -> list[str]:
        return [text for (text,) in held]

    return cases_on_ranks.on_ranks(
        partial(_held_in_list, n), n, device, in_one_list, lambda case: calls_of(case, n)[0].members, _make_groups
    )


_groups: dict[tuple[int, ...], Any] = {}
"""On a rank: by its members the communicator of a group."""


def _make_groups(cases: Sequence[Case]) -> None:
    """On every rank of the job: a communicator for each group of the cases."""
    _groups.clear()
    for members in dict.fromkeys(case.group for case in cases if case.group):
        _groups[members] = dist.new_group(list(members))
        dist.barrier()  # gloo groups share keys in the store: without it a rank may read those of the group before


_in_flight: list[Any] = []
"""On a rank: the tasks of calls that have returned at once."""


def _held_in_list(n: int, case: Case) -> list[str]:
    """What this rank holds after the calls of a case, or what else changed that must not."""
    calls = calls_of(case, n)
    _in_flight.clear()
    made = [_CALLS[call.kind](call, dist.get_rank(), _groups.get(case.group)) for call in calls]
    for task in reversed(_in_flight):
        task.wait()
    if case.form == "not awaited" and not str(paddle.get_device()).startswith("cpu"):
        paddle.device.synchronize()
    return ["; ".join(_held(call, *of_call) for call, of_call in zip(calls, made, strict=True))]


def _held(call: Call, result: Result, must_stay: Stay) -> str:
    if result is not None:  # an operator reads what the call has made
        result = result() if callable(result) else result.clone()
    for what, (tensor, before) in must_stay.items():
        if tensor.numpy().tobytes() != before.tobytes():
            return f"{what} changed"
    if result is None:
        return collective_cases.UNDEFINED
    if result.dtype != getattr(paddle, call.dtype):
        return f"of type {result.dtype}"
    return collective_cases.digest(collective_cases.comparable(result.numpy(), call))


Stay = dict[str, tuple[paddle.Tensor, np.ndarray]]
"""Tensors that a call must not change, with what their memory held before."""

Result = paddle.Tensor | Callable[[], paddle.Tensor] | None
"""What a call has made, once it has ended; what joins its parts then."""


def _tensor(stored: np.ndarray, dtype: Any) -> paddle.Tensor:
    """From what a memory holds, bfloat16 as uint16."""
    return paddle.to_tensor(stored, dtype=dtype)


def _placed(stored: np.ndarray, call: Call) -> tuple[paddle.Tensor, Stay]:
    """A tensor of these values; for memory "piece" a piece of a longer one, with what is before and after it."""
    if call.memory == STRIDED:
        return _tensor(np.repeat(stored, 2, axis=0), call.dtype)[::2], {}
    if call.memory != "piece":
        return _tensor(stored, call.dtype), {}
    around = np.full([5, *stored.shape[1:]], GUARD, stored.dtype)
    longer = _tensor(np.concatenate([around[:3], stored, around[3:]]), call.dtype)
    return longer[3:-2], {"memory before it": (longer[:3], around[:3]), "memory after it": (longer[-2:], around[3:])}


def _unfilled(shape: Sequence[int], call: Call) -> tuple[paddle.Tensor, Stay]:
    return _placed(np.full(shape, UNFILLED, "uint16" if call.dtype == "bfloat16" else call.dtype), call)


def _input(call: Call, rank: int) -> tuple[paddle.Tensor, Stay]:
    """A tensor that the call reads, and must leave as it is."""
    stored = collective_cases.given(call, rank)
    tensor = _placed(stored, call)[0] if call.memory == STRIDED else _tensor(stored, call.dtype)
    return tensor, {"its input": (tensor, stored)}


def _parts(tensor: paddle.Tensor, call: Call) -> list[paddle.Tensor]:
    """One tensor of the call's shape for each member."""
    starts = [place * call.size for place in range(len(call.members))]
    return [tensor[start : start + call.size].reshape(call.shape) for start in starts]


def _flat(parts: Sequence[paddle.Tensor]) -> paddle.Tensor:
    if not parts:
        raise ValueError("the list of results is empty")
    return paddle.concat([part.reshape([-1]) for part in parts])


Made = tuple[Result, Stay]


def _made(call: Call, name: str, *given: Any, **options: Any) -> None:
    """Call the function of this name in its form; what is to be awaited is in flight."""
    if call.kind in collective_cases.REDUCING:
        options["op"] = getattr(dist.ReduceOp, call.op)
    if call.form == "calc stream":
        options["use_calc_stream"] = True
    if call.form not in ("async", "not awaited"):
        getattr(dist.stream if call.form in STREAMS else dist, name)(*given, **options)
        return
    task = getattr(dist, name)(*given, **options, sync_op=False)
    if task is not None and call.form == "async":  # none in a group of one rank
        _in_flight.append(task)


def _in_place(call: Call, rank: int, group: Any) -> Made:
    """all_reduce, reduce and broadcast write to the tensor that they read."""
    x, stay = _placed(collective_cases.given(call, rank), call)
    root = {"reduce": {"dst": call.root}, "broadcast": {"src": call.root}}.get(call.kind, {})
    _made(call, call.kind, x, **root, group=group)
    return (None if call.kind == "reduce" and rank != call.root else x), stay


def _all_gather(call: Call, rank: int, group: Any) -> Made:
    x, stay = _input(call, rank)
    if call.form not in STREAMS:
        parts: list[paddle.Tensor] = []
        _made(call, "all_gather", parts, x, group=group)
        return (lambda: _flat(parts)), stay
    out, around = _unfilled([len(call.members) * call.size], call)
    _made(call, "all_gather", out, x, group=group)
    return out, {**stay, **around}


def _gather(call: Call, rank: int, group: Any) -> Made:
    x, stay = _input(call, rank)
    parts: list[paddle.Tensor] = []
    _made(call, "gather", x, parts if rank == call.root else None, dst=call.root, group=group)
    return ((lambda: _flat(parts)) if rank == call.root else None), stay


def _scattered(call: Call, rank: int, group: Any) -> Made:
    """scatter and reduce_scatter take a part for each member: tensors, or in the form of a stream one tensor of all."""
    x, stay = _input(call, rank)
    out, around = _unfilled(call.shape, call)
    sent = x if call.form in STREAMS else _parts(x, call)
    if call.kind == "scatter":
        _made(call, "scatter", out, sent if rank == call.root else None, src=call.root, group=group)
    else:
        _made(call, "reduce_scatter", out, sent, group=group)
    return out, {**stay, **around}


def _all_to_all(call: Call, rank: int, group: Any) -> Made:
    x, stay = _input(call, rank)
    place, sizes = call.members.index(rank), collective_cases.split_sizes(call)
    if call.form == "call":
        received: list[paddle.Tensor] = []
        dist.alltoall(received, _parts(x, call), group=group)
        return (lambda: _flat(received)), stay
    out, around = _unfilled([int(sizes[:, place].sum())], call)
    sent = x[: int(sizes[place].sum())]
    splits = {"in_split_sizes": sizes[place].tolist(), "out_split_sizes": sizes[:, place].tolist()}
    _made(call, "alltoall_single", out, sent, **({} if call.parts == "equal" else splits), group=group)
    return out, {**stay, **around}


_CALLS: dict[str, Callable[[Call, int, Any], Made]] = {
    **dict.fromkeys(("all_reduce", "reduce", "broadcast"), _in_place),
    **dict.fromkeys(("scatter", "reduce_scatter"), _scattered),
    "all_gather": _all_gather,
    "gather": _gather,
    "all_to_all": _all_to_all,
}
