"""The calls of collective_cases on ranks: each member calls the collective, and says what it holds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks
from xpulab.chapters.collectives.collective_cases import (
    FORMS,
    REDUCING,
    REFUSAL,
    UNDEFINED,
    Answers,
    Case,
    digest,
    given,
    groups,
    make,
    split_sizes,
)
from xpulab.checks.compare import first_line
from xpulab.records.refusals import format_undeclared, refusal

GUARD = 77
"""The number before and after a piece of a longer tensor. It must stay."""

UNFILLED = 99
"""The number in a result before the call: memory that was used before may hold the right numbers already."""


REFUSALS = ("support", "unimplemented", "nccl_version")
"""Parts of the messages with which Paddle refuses a type or a reduction on every rank, before anything is sent.

The ranks answer and go on; after any other error the run ends. Whether a refusal is right says data/refusals.yaml."""


def on_ranks(n: int, device: str, level: str, seed: int, time_limit: float = 300.0) -> tuple[list[Case], Answers]:
    """All cases of these choices, run by n ranks, and by name what each member held. Raises RanksFailed."""
    cases = make(n, device, level, seed)
    every = ranks.run(_run, n, cases, groups(n, device, level), device=device, time_limit=time_limit)
    return cases, {case.name: [every[rank][index] for rank in case.members] for index, case in enumerate(cases)}


def _run(cases: Sequence[Case], members: Sequence[tuple[int, ...]]) -> dict[int, str]:
    """On a rank: by the number of each case that it is a member of, what it holds."""
    dist.init_parallel_env()
    rank, found = dist.get_rank(), {}
    communicator = new_groups(members)
    for index, case in enumerate(cases):
        if rank in case.members:
            ranks.step(case.name)
            found[index] = answer(case, rank, None if case.everyone else communicator[case.members])
    dist.barrier()
    return found


def new_groups(members: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Any]:
    """A communicator for each group of ranks. Every rank of the job must call it with the same groups."""
    made = {}
    for each in members:
        made[each] = dist.new_group(list(each))
        dist.barrier()  # gloo groups share keys in the store: without it a rank may read those of the group before
    return made


def answer(case: Case, rank: int, group: Any) -> str:
    """What this rank holds after the call; what else changed that must not; or the message with which it was refused.

    Raises RuntimeError with the case's name when the call failed otherwise: other ranks may wait in it, so the run must end.
    """
    try:
        if case.form == "object":
            return _objects(case, rank, group)
        result, must_stay = _CALLS[case.kind](case, rank, group)
        for what, (tensor, before) in must_stay.items():
            if not np.array_equal(_numpy(tensor), before, equal_nan=True):
                return f"{what} changed"
        if result is None:
            return UNDEFINED
        return digest(_numpy(result)) if case.dtype in str(result.dtype) else f"of type {result.dtype}"
    except Exception as error:
        message = f"{type(error).__name__}: {first_line(error)}"
        if not any(words in message.lower() for words in REFUSALS):
            raise RuntimeError(f"{case.name}: {message}") from error
        return f"{REFUSAL}{message}"


ZERO_SIZE = ("all_reduce", "reduce", "broadcast", "gather", "scatter", "all_gather", "reduce_scatter", "all_to_all")
"""The collectives of `zero_size`."""


def zero_size(kinds: Sequence[str]) -> dict[str, tuple[str, str]]:
    """On a rank: what a collective of no elements gives, "nothing" or the error, and whether the next sum is right."""
    dist.init_parallel_env()
    rank, n = dist.get_rank(), dist.get_world_size()
    found = {}
    for kind in kinds:
        ranks.step(kind)
        form = FORMS[kind][0]
        case = Case(kind, form, "SUM" if kind in REDUCING else "", "float32", 0, "positive", tuple(range(n)), 1, "own", True)
        try:
            result, _ = _CALLS[kind](case, rank, None)
            outcome = "nothing" if result is None or result.size == 0 else f"{result.size} elements"
        except Exception as error:
            outcome = f"{REFUSAL}{type(error).__name__}: {first_line(error)}"
        after = paddle.ones([3])
        dist.all_reduce(after)
        found[kind] = outcome, "right" if after.numpy().tolist() == [n] * 3 else "wrong"
    return found


def outcome_of_nothing(kind: str, device: str, outcome: str, next_sum: str) -> str:
    """What a row shows of an answer of zero_size: an error that is declared for this device harms as little as no element."""
    if outcome.startswith(REFUSAL):
        asked = device, kind, "", "", "no elements"
        outcome = "nothing" if refusal(*asked) else format_undeclared(outcome, *asked)
    return f"{outcome}, the next sum is {next_sum}"


Stay = dict[str, tuple[paddle.Tensor, np.ndarray]]
"""Tensors that a call must not change, with what they held before."""


def _numpy(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy() if "bfloat16" in str(tensor.dtype) else tensor.numpy()


def _tensor(values: np.ndarray, dtype: Any) -> paddle.Tensor:
    if values.size == 0:
        return _empty(dtype, values.shape)
    return paddle.to_tensor(values).astype(dtype)


def _placed(values: np.ndarray, case: Case) -> tuple[paddle.Tensor, Stay]:
    """A tensor of these values; for memory "view" a piece of a longer one, with what is before and after it."""
    if case.memory != "view":
        return _tensor(values, case.dtype), {}
    longer = _tensor(np.pad(values, (3, 2), constant_values=GUARD), case.dtype)
    piece = longer[3 : 3 + len(values)]
    return piece, {"memory before it": (longer[:3], np.full(3, GUARD)), "memory after it": (longer[-2:], np.full(2, GUARD))}


def _empty(dtype: Any, shape: Sequence[int] = (0,)) -> paddle.Tensor:
    return paddle.empty(list(shape), dtype=dtype)  # to_tensor, astype and full of no elements give a tensor on the CPU


def _unfilled(count: int, case: Case) -> tuple[paddle.Tensor, Stay]:
    if count == 0:
        return _empty(case.dtype), {}
    return _placed(np.full(count, UNFILLED, "int64"), case)


def _input(case: Case, rank: int) -> tuple[paddle.Tensor, Stay]:
    """A tensor that the call reads, and must leave as it is."""
    tensor = _tensor(given(case, rank), case.dtype)
    return tensor, {"its input": (tensor, _numpy(tensor))}


def _parts(tensor: paddle.Tensor, sizes: Sequence[int]) -> list[paddle.Tensor]:
    ends = np.cumsum(sizes)
    return [tensor[int(end - size) : int(end)] for end, size in zip(ends, sizes, strict=True)]


Result = tuple[paddle.Tensor | None, Stay]


def _all_reduce(case: Case, rank: int, group: Any) -> Result:
    x, stay = _placed(given(case, rank), case)
    op = getattr(dist.ReduceOp, case.op)
    if case.form == "stream":
        dist.stream.all_reduce(x, op=op, group=group)
    elif case.form == "async":
        dist.all_reduce(x, op=op, group=group, sync_op=False).wait()  # returns at once; read x only after wait
    else:
        dist.all_reduce(x, op=op, group=group)
    return x, stay


def _reduce(case: Case, rank: int, group: Any) -> Result:
    x, stay = _placed(given(case, rank), case)
    call = dist.stream.reduce if case.form == "stream" else dist.reduce
    call(x, dst=case.root, op=getattr(dist.ReduceOp, case.op), group=group)
    return (x if rank == case.root else None), stay


def _broadcast(case: Case, rank: int, group: Any) -> Result:
    x, stay = _placed(given(case, rank), case)
    (dist.stream.broadcast if case.form == "stream" else dist.broadcast)(x, src=case.root, group=group)
    return x, stay


def _all_gather(case: Case, rank: int, group: Any) -> Result:
    x, stay = _input(case, rank)
    if case.form == "list":
        parts: list[paddle.Tensor] = []
        dist.all_gather(parts, x, group=group)
        return paddle.concat(parts), stay
    out, around = _unfilled(len(case.members) * case.size, case)
    if case.memory == "shared":  # the input is its own part of the output
        place = case.members.index(rank) * case.size
        own = out[place : place + case.size]
        paddle.assign(x, own)
        x, stay = own, {}
    dist.stream.all_gather(out, x, group=group)
    return out, {**stay, **around}


def _gather(case: Case, rank: int, group: Any) -> Result:
    x, stay = _input(case, rank)
    parts: list[paddle.Tensor] = []
    dist.gather(x, parts if rank == case.root else None, dst=case.root, group=group)
    return (paddle.concat(parts) if rank == case.root else None), stay


def _scatter(case: Case, rank: int, group: Any) -> Result:
    x, stay = _input(case, rank)
    out, around = _unfilled(case.size, case)
    if case.form == "tensor":
        dist.stream.scatter(out, x if rank == case.root else None, src=case.root, group=group)
    else:
        parts = _parts(x, [case.size] * len(case.members)) if rank == case.root else None
        dist.scatter(out, parts, src=case.root, group=group)
    return out, {**stay, **around}


def _reduce_scatter(case: Case, rank: int, group: Any) -> Result:
    x, stay = _input(case, rank)
    op = getattr(dist.ReduceOp, case.op)
    if case.form == "list":
        out, around = _unfilled(case.size, case)
        dist.reduce_scatter(out, _parts(x, [case.size] * len(case.members)), op=op, group=group)
        return out, {**stay, **around}
    if case.memory == "shared":  # the output is its own part of the input
        place = case.members.index(rank) * case.size
        out, around, stay = x[place : place + case.size], {}, {}
    else:
        out, around = _unfilled(case.size, case)
    dist.stream.reduce_scatter(out, x, op=op, group=group)
    return out, {**stay, **around}


def _all_to_all(case: Case, rank: int, group: Any) -> Result:
    x, stay = _input(case, rank)
    place, sizes = case.members.index(rank), split_sizes(case)
    if case.form == "list":
        received: list[paddle.Tensor] = []
        dist.alltoall(received, _parts(x, sizes[place].tolist()), group=group)
        return paddle.concat(received), stay
    out, around = _unfilled(int(sizes[:, place].sum()), case)
    sent = x[: int(sizes[place].sum())] if sizes[place].any() else _empty(case.dtype)
    if case.form == "tensor":
        dist.alltoall_single(out, sent, group=group)
    else:
        splits = {"in_split_sizes": sizes[place].tolist(), "out_split_sizes": sizes[:, place].tolist()}
        dist.alltoall_single(out, sent, **splits, group=group)
    return out, {**stay, **around}


def _objects(case: Case, rank: int, group: Any) -> str:
    """The same values in Python objects: dictionaries with texts of different lengths."""
    mine = {"rank": rank, "values": given(case, rank).tolist(), "text": "x" * (7 * rank)}
    if case.kind == "all_gather":
        got: list[Any] = []
        dist.all_gather_object(got, mine, group=group)
        return _digest_objects(got, case.members)
    if case.kind == "broadcast":
        got = [mine] if rank == case.root else [None]
        dist.broadcast_object_list(got, src=case.root, group=group)
        return _digest_objects(got, [case.root])
    got, parts = [], np.split(given(case, rank), len(case.members))
    to_send = [{**mine, "values": part.tolist()} for part in parts] if rank == case.root else None
    dist.scatter_object_list(got, to_send, src=case.root, group=group)
    return _digest_objects(got, [case.root])


def _digest_objects(got: Sequence[Any], sources: Sequence[int]) -> str:
    if [(each["rank"], len(each["text"])) for each in got] != [(source, 7 * source) for source in sources]:
        return f"objects of ranks {[each['rank'] for each in got]}"
    return digest(np.concatenate([each["values"] for each in got]))


_CALLS: dict[str, Callable[[Case, int, Any], Result]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
