"""The calls of collective_cases on ranks: each member calls the collective, and says what it holds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks
from xpulab.chapters.collectives.collective_cases import (
    REDUCING,
    REFUSAL,
    UNDEFINED,
    Call,
    call_of,
    comparable,
    digest,
    given,
    split_sizes,
)
from xpulab.chapters.shared.cases_on_ranks import error_of_all
from xpulab.checks.grid import Case

GUARD = 77
"""The number before and after a piece of a longer tensor. It must stay."""

UNFILLED = 99
"""The number in a result before the call: memory that was used before may hold the right numbers already."""


def on_ranks(n: int, device: str) -> Callable[[Sequence[Case]], list[list[str]]]:
    """What check.grid takes as `run`: cases on n ranks, in one start of them; of each case what each member held, as text.

    It raises RanksFailed when a call ends a rank, or raises an error on some members only, for which the others would wait.
    """

    def run(cases: Sequence[Case]) -> list[list[str]]:
        calls = [call_of(case, n) for case in cases]
        members = list(dict.fromkeys(call.members for call in calls if not call.everyone))
        every = ranks.run(_run, n, calls, members, device=device, time_limit=300.0)
        return [[every[rank][number] for rank in call.members] for number, call in enumerate(calls)]

    return run


def _run(calls: Sequence[Call], members: Sequence[tuple[int, ...]]) -> dict[int, str]:
    """On a rank: by the number of each call that it is a member of, what it holds."""
    dist.init_parallel_env()
    rank, found = dist.get_rank(), {}
    communicator = new_groups(members)
    for number, call in enumerate(calls):
        if rank in call.members:
            ranks.step(call.name)
            found[number] = answer(call, rank, None if call.everyone else communicator[call.members])
    return found


def new_groups(members: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Any]:
    """A communicator for each group of ranks. Every rank of the job must call it with the same groups."""
    made = {}
    for each in members:
        made[each] = dist.new_group(list(each))
        dist.barrier()  # gloo groups share keys in the store: without it a rank may read those of the group before
    return made


def answer(call: Call, rank: int, group: Any) -> str:
    """What this rank holds after the call; what else changed that must not; or the error that every member raised.

    Raises RuntimeError with the call when not all members raised: others may wait in it, so the run must end.
    """
    try:
        result, must_stay = _CALLS[call.kind](call, rank, group)
        for what, (tensor, before) in must_stay.items():
            if tensor.numpy().tobytes() != before.tobytes():
                return f"{what} changed"
        if result is None:
            return UNDEFINED
        if result.dtype != getattr(paddle, call.dtype):
            return f"of type {result.dtype}"
        return digest(comparable(result.numpy(), call))
    except Exception as error:
        return f"{REFUSAL}{error_of_all(error, str(call), len(call.members))}"


Stay = dict[str, tuple[paddle.Tensor, np.ndarray]]
"""Tensors that a call must not change, with what their memory held before."""


def _tensor(stored: np.ndarray, dtype: Any) -> paddle.Tensor:
    """From what a memory holds, bfloat16 as uint16."""
    return paddle.to_tensor(stored, dtype=dtype)


def _placed(stored: np.ndarray, call: Call) -> tuple[paddle.Tensor, Stay]:
    """A tensor of these values; for memory "piece" a piece of a longer one, with what is before and after it."""
    if call.memory != "piece":
        return _tensor(stored, call.dtype), {}
    around = np.full(5, GUARD, stored.dtype)
    longer = _tensor(np.concatenate([around[:3], stored, around[3:]]), call.dtype)
    return longer[3:-2], {"memory before it": (longer[:3], around[:3]), "memory after it": (longer[-2:], around[3:])}


def _unfilled(shape: Sequence[int], call: Call) -> tuple[paddle.Tensor, Stay]:
    return _placed(np.full(shape, UNFILLED, "uint16" if call.dtype == "bfloat16" else call.dtype), call)


def _input(call: Call, rank: int) -> tuple[paddle.Tensor, Stay]:
    """A tensor that the call reads, and must leave as it is."""
    stored = given(call, rank)
    tensor = _tensor(stored, call.dtype)
    return tensor, {"its input": (tensor, stored)}


def _parts(tensor: paddle.Tensor, call: Call) -> list[paddle.Tensor]:
    """One tensor of the call's shape for each member."""
    starts = range(0, len(call.members) * call.size, call.size)
    return [tensor[start : start + call.size].reshape(call.shape) for start in starts]


def _flat(parts: Sequence[paddle.Tensor]) -> paddle.Tensor:
    if not parts:
        raise ValueError("the list of results is empty")
    return paddle.concat([part.reshape([-1]) for part in parts])


Result = tuple[paddle.Tensor | None, Stay]


def _made(call: Call, name: str, *given: Any, **options: Any) -> None:
    """Call the function of this name in its form, and wait for it where it returns at once."""
    if call.kind in REDUCING:
        options["op"] = getattr(dist.ReduceOp, call.op)
    if call.form != "async":
        getattr(dist.stream if call.form == "stream" else dist, name)(*given, **options)
        return
    task = getattr(dist, name)(*given, **options, sync_op=False)
    if task is not None:  # none in a group of one rank
        task.wait()  # read results only after it


def _in_place(call: Call, rank: int, group: Any) -> Result:
    """all_reduce, reduce and broadcast write to the tensor that they read."""
    x, stay = _placed(given(call, rank), call)
    root = {"reduce": {"dst": call.root}, "broadcast": {"src": call.root}}.get(call.kind, {})
    _made(call, call.kind, x, **root, group=group)
    return (None if call.kind == "reduce" and rank != call.root else x), stay


def _all_gather(call: Call, rank: int, group: Any) -> Result:
    x, stay = _input(call, rank)
    if call.form != "stream":
        parts: list[paddle.Tensor] = []
        _made(call, "all_gather", parts, x, group=group)
        return _flat(parts), stay
    out, around = _unfilled([len(call.members) * call.size], call)
    _made(call, "all_gather", out, x, group=group)
    return out, {**stay, **around}


def _gather(call: Call, rank: int, group: Any) -> Result:
    x, stay = _input(call, rank)
    parts: list[paddle.Tensor] = []
    _made(call, "gather", x, parts if rank == call.root else None, dst=call.root, group=group)
    return (_flat(parts) if rank == call.root else None), stay


def _scattered(call: Call, rank: int, group: Any) -> Result:
    """scatter and reduce_scatter take a part for each member: tensors, or in the form of a stream one tensor of all."""
    x, stay = _input(call, rank)
    out, around = _unfilled(call.shape, call)
    sent = x if call.form == "stream" else _parts(x, call)
    if call.kind == "scatter":
        _made(call, "scatter", out, sent if rank == call.root else None, src=call.root, group=group)
    else:
        _made(call, "reduce_scatter", out, sent, group=group)
    return out, {**stay, **around}


def _all_to_all(call: Call, rank: int, group: Any) -> Result:
    x, stay = _input(call, rank)
    place, sizes = call.members.index(rank), split_sizes(call)
    if call.form == "call":
        received: list[paddle.Tensor] = []
        dist.alltoall(received, _parts(x, call), group=group)
        return _flat(received), stay
    out, around = _unfilled([int(sizes[:, place].sum())], call)
    sent = x[: int(sizes[place].sum())]
    splits = {"in_split_sizes": sizes[place].tolist(), "out_split_sizes": sizes[:, place].tolist()}
    _made(call, "alltoall_single", out, sent, **({} if call.parts == "equal" else splits), group=group)
    return out, {**stay, **around}


_CALLS: dict[str, Callable[[Call, int, Any], Result]] = {
    **dict.fromkeys(("all_reduce", "reduce", "broadcast"), _in_place),
    **dict.fromkeys(("scatter", "reduce_scatter"), _scattered),
    "all_gather": _all_gather,
    "gather": _gather,
    "all_to_all": _all_to_all,
}
