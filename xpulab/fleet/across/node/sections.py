"""What the ranks of a trial do: collectives with values compared with numpy, a training on all ranks, and rates.

Each check has a control that the same comparison must reject. A group of one rank has nothing to send: it trains only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.chapters.collectives.collective_calls import answer
from xpulab.chapters.collectives.collective_cases import Call, declared, digest, held, off_by_a_place, undeclared
from xpulab.checks import compare
from xpulab.fleet.across.node.job import Job, Notes
from xpulab.reference import data_parallel

_EXACT_RANKS = {"bfloat16": 16, "float16": 128}
"""So many ranks' sums of numbers up to 15 are exact in the type."""
_RATE_ELEMENTS = {"cpu": 2**18, "sim": 2**18, "gpu": 2**26, "xpu": 2**26}
_RATE_TIMES = 5
_LOSS_TOLERANCE = {"cpu": 1e-4, "sim": 1e-4, "gpu": 2e-2, "xpu": 2e-2}
"""On a GPU or an XPU matrix products may be computed in TF32."""
_BYTES = 4


def run(me: Job, notes: Notes) -> None:
    """All sections, one after the other."""
    if me.ranks > 1:
        _collectives(me, notes)
        _messages(me, notes)
    _training(me, notes)
    if me.ranks > 1 and me.rates:
        _rates(me, notes)
    if me.ranks > 1:
        _leave(me, notes)


def _leave(me: Job, notes: Notes) -> None:
    """No rank ends while another one still receives from it."""
    notes.step("barrier")
    dist.barrier()
    last = paddle.ones([1])
    dist.all_reduce(last)
    notes.check("all ranks are at the end", compare.equal(float(last), float(me.ranks)), compare.equal(1.0, float(me.ranks)))


def _collectives(me: Job, notes: Notes) -> None:
    rank, device = me.seat.rank, me.seat.device
    for case in cases(me.ranks):
        name = f"{case.kind} {case.op} {case.dtype}[{case.size}]".replace("  ", " ")
        if reason := _refused(case, me):
            notes.skip(name, reason)
            continue
        notes.step(name)
        got, values = undeclared(answer(case, rank, None), case, device), held(case, rank, device)
        if values is not None:  # a reduction is defined at its root only
            right = digest(values)
            notes.check(name, compare.equal(got, right), compare.equal(digest(off_by_a_place(values)), right))


def cases(ranks: int) -> list[Call]:
    """The collectives: each kind, the types and reductions that training uses, and sizes of one message and of several."""
    everyone = tuple(range(ranks))
    reducing = partial(Call, members=everyone, op="SUM")
    moving = partial(Call, members=everyone, values="numbers")
    last = ranks - 1
    return [
        reducing("all_reduce", "call", "float32", shape=(1,)),
        reducing("all_reduce", "call", "float32", shape=(65537,)),
        reducing("all_reduce", "async", "int64", shape=(1025,)),
        reducing("all_reduce", "call", "bfloat16", shape=(1025,)),
        reducing("all_reduce", "call", "float16", shape=(1025,)),
        reducing("all_reduce", "call", "float32", op="MAX", shape=(1025,), values="negative"),
        reducing("all_reduce", "call", "int32", op="MIN"),
        reducing("all_reduce", "call", "float64", op="PROD", shape=(1025,), values="positive"),
        reducing("reduce", "call", "float32", shape=(1025,), root=last),
        moving("broadcast", "call", "float32", shape=(65537,), root=last),
        moving("broadcast", "call", "bfloat16", root=0),
        moving("all_gather", "call", "float32", shape=(1025,)),
        moving("all_gather", "stream", "int64"),
        moving("scatter", "call", "float32", shape=(1025,), root=0),
        reducing("reduce_scatter", "stream", "float32", shape=(1025,)),
        moving("all_to_all", "single", "float32", shape=(1025,)),
        moving("all_to_all", "single", "int64", parts="uneven"),
    ]


def _refused(case: Call, me: Job) -> str:
    """Why a case is not run; "" when it is."""
    if lacks := declared(case, me.seat.device):
        return lacks.format_reason()
    if (me.seat.device, case.dtype) == ("cpu", "float16"):
        return "gloo reduces float16 wrongly, a known issue of chapter 09"
    if case.op == "SUM" and me.ranks > _EXACT_RANKS.get(case.dtype, me.ranks):
        return f"a sum of {me.ranks} numbers is not exact in {case.dtype}"
    return ""


def _messages(me: Job, notes: Notes) -> None:
    """Each rank sends to the next one, and receives from the one before: even ranks send first."""
    name = "send and receive float32[65537]"
    if me.seat.device == "cpu" and me.ranks > 2:
        notes.skip(name, "gloo blocks in send and receive with more than two ranks")
        return
    if me.ranks % 2:
        notes.skip(name, "an odd number of ranks")
        return
    notes.step(name)
    partner = me.seat.rank ^ 1
    got = exchange(me.seat.rank, partner, paddle.full([65537], float(me.seat.rank + 1))).numpy()
    want = np.full(65537, partner + 1.0)
    notes.check(name, compare.equal(got, want), compare.equal(want + 1, want))


def exchange(rank: int, partner: int, mine: paddle.Tensor) -> paddle.Tensor:
    """What the partner sent, while this rank sent `mine`: the lower rank sends first."""
    got = paddle.zeros_like(mine)
    for send in (rank < partner, rank > partner):
        if send:
            dist.send(mine, dst=partner)
        else:
            dist.recv(got, src=partner)
    return got


def _training(me: Job, notes: Notes) -> None:
    """Data parallel: losses of this rank's rows, and the last weights, as numpy has them for all rows together."""
    rank = me.seat.rank
    reference = data_parallel.train(me.ranks, me.seed)
    control = data_parallel.train_alone(me.ranks, rank, me.seed) if me.ranks > 1 else data_parallel.untrained(me.seed)
    model = paddle.nn.Sequential(
        *(paddle.nn.Linear(data_parallel.FEATURES, data_parallel.HIDDEN), paddle.nn.Tanh()),
        paddle.nn.Linear(data_parallel.HIDDEN, data_parallel.CLASSES),
    )
    for parameter, value in zip(model.parameters(), data_parallel.weights(me.seed), strict=True):
        parameter.set_value(value.astype("float32"))
    wrapped = paddle.DataParallel(model) if me.ranks > 1 else model
    optimizer = paddle.optimizer.SGD(data_parallel.RATE, parameters=model.parameters())
    rows, labels = (paddle.to_tensor(each) for each in data_parallel.batch(rank, me.seed))
    losses = []
    for number in range(data_parallel.STEPS):
        notes.step(f"training, step {number + 1}")
        loss = paddle.nn.functional.cross_entropy(wrapped(rows), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    tolerance = _LOSS_TOLERANCE[me.seat.device]
    for name, got, want, wrong in (
        ("training: losses of this rank", losses, reference.losses[rank], control.losses[rank if me.ranks > 1 else 0]),
        ("training: last weights", model[0].weight.numpy(), reference.weights[0], control.weights[0]),
    ):
        notes.check(name, compare.close(got, want, tolerance, 0.0), compare.close(wrong, want, tolerance, 0.0))


def _rates(me: Job, notes: Notes) -> None:
    """GB/s of all_reduce as bus bandwidth, 2 (n - 1) / n bytes for each byte, and of messages between two nodes."""
    count = _RATE_ELEMENTS[me.seat.device]
    x = paddle.ones([count])
    notes.step("rate of all_reduce")
    seconds = min(_timed(lambda: all_reduced(x)))
    notes.rate("all_reduce", 2 * (me.ranks - 1) / me.ranks * count * _BYTES / seconds / 1e9)
    if me.ranks != 2 * me.seat.local_ranks or (me.seat.device == "cpu" and me.ranks > 2):
        return
    partner = (me.seat.rank + me.seat.local_ranks) % me.ranks
    notes.step("rate of messages between two nodes")
    seconds = min(_timed(lambda: exchange(me.seat.rank, partner, x)))
    notes.rate("messages", 2 * count * _BYTES / seconds / 1e9)  # one each way, one after the other


def all_reduced(x: paddle.Tensor) -> paddle.Tensor:
    """The maximum over ranks, in x itself: it stays as it is when all ranks have the same."""
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return x


def _timed(work: Callable[[], paddle.Tensor]) -> Iterator[float]:
    """Seconds of each time; the first, which connects the ranks, is left out. Reading the result waits for the card."""
    for number in range(_RATE_TIMES + 1):
        dist.barrier()
        started = time.perf_counter()
        float(work()[-1])
        if number:
            yield time.perf_counter() - started
