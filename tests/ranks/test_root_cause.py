"""The root cause, case by case: the earliest rank with a reason of its own, or the one that never arrived."""

from __future__ import annotations

from pathlib import Path

import pytest

from xpulab.ranks import rendezvous
from xpulab.ranks.outcome import Raised, Rank
from xpulab.ranks.root_cause import find
from xpulab.ranks.stacks import Frame, Stack, in_collective

PADDLE = "/site-packages/paddle"
ALL_REDUCE = (f"{PADDLE}/distributed/communication/stream/all_reduce.py", "_all_reduce_in_dygraph")
CELL = ("/tmp/ipykernel_1/2.py", "work")
RESET = "[/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:576] Read error [127.0.0.1]:2105: Connection reset by peer"
NO_PEER = "[/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:584] TIMEOUT self_rank = 0 pair_rank = 1"


def raised(rank: int, at: float, kind: str = "ValueError", message: str = "boom", frames: tuple = (CELL,)) -> Rank:
    return Rank(rank, pid=1, at=at, raised=Raised(kind, message, "", frames))


def returned(rank: int, at: float = 0.0) -> Rank:
    return Rank(rank, pid=1, at=at, value=b"", status=0)


def killed(rank: int, at: float) -> Rank:
    return Rank(rank, pid=1, at=at, ended=True, status=-9)


def affected(rank: int, at: float, message: str = RESET) -> Rank:
    return raised(rank, at, "RuntimeError", message, (ALL_REDUCE, CELL))


def late(rank: int, *frames: tuple[str, str], steps: int = 0, line: int = 5) -> Rank:
    stack = Stack(tuple(Frame(file, line, name) for file, name in frames), "stack")
    return Rank(rank, pid=1, is_late=True, stack=stack, steps=["step"] * steps)


def waiting(rank: int, steps: int = 0, line: int = 5) -> Rank:
    return late(rank, ALL_REDUCE, CELL, steps=steps, line=line)


CASES = {
    "the only one that failed": ([returned(0), raised(1, 2.0)], 1),
    "the earliest of two with reasons of their own": ([raised(0, 3.0), raised(1, 2.0)], 1),
    "not the affected rank that complained first": ([affected(0, 1.0), raised(1, 2.0), affected(2, 1.5)], 1),
    "not the affected rank that ran into a time-out": ([affected(0, 1.0, NO_PEER), raised(1, 2.0)], 1),
    "the one that was killed": ([affected(0, 2.1), killed(1, 2.0), affected(2, 2.2)], 1),
    "the first that was killed": ([killed(0, 2.1), killed(1, 2.0)], 1),
    "the killed before those that wait": ([waiting(0), killed(1, 9.0), waiting(2)], 1),
    "the one that raised before it, not the one that was killed": ([raised(0, 1.0), killed(1, 2.0)], 0),
    "the one that never started": ([waiting(0), waiting(1), Rank(2)], 2),
    "never started, with affected ranks": ([affected(0, 1.0), Rank(1)], 1),
    "the one at work outside collectives": ([waiting(0), late(1, CELL), waiting(2)], 1),
    "the one at work, with affected ranks": ([affected(0, 30.0, "Timeout after 30 s"), late(1, CELL)], 1),
    "of two at work, the one that has come less far": ([waiting(0), late(1, CELL, steps=4), late(2, CELL, steps=3)], 2),
    "the one that has left": ([waiting(0), returned(1, 1.0), waiting(2)], 1),
    "at work rather than returned": ([late(0, CELL), returned(1, 1.0)], 0),
    "the one in an earlier collective, by steps": ([waiting(0, steps=3), waiting(1, steps=2), waiting(2, steps=3)], 1),
    "the one in another collective, by place": ([waiting(0), waiting(1, line=9), waiting(2)], 1),
    "none, when all have returned": ([returned(0), returned(1)], None),
    "one rank that works too long": ([late(0, CELL)], 0),
    "one rank that waits": ([waiting(0)], 0),
    "none, when all wait for the same": ([waiting(0), waiting(1)], None),
    "none, when all work too long": ([late(0, CELL), late(1, CELL)], None),
    "the first affected rank, when there is no other": ([affected(0, 2.0), affected(1, 1.0)], 1),
    "a fault that was asked for is its own reason": (
        [affected(0, 1.0, "rank 1 has died"), affected(1, 2.0, "injected fault: the device timed out")],
        1,
    ),
    "a card's error with another rank's name is no reason of its own": (
        [raised(0, 1.0, "OSError", "CustomDevice error: error of the simulated card: rank 1 never came"), late(1, CELL)],
        1,
    ),
    "a time-out of the reader's own is a reason of its own": ([raised(0, 2.0, "TimeoutError", "timed out"), waiting(1)], 0),
    "a wrong argument to a collective is a reason of its own": (
        [raised(0, 2.0, "TypeError", "reduce op not supported", (ALL_REDUCE, CELL)), affected(1, 1.0)],
        0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_root_cause_is_found(case: str):
    ranks, root_cause = CASES[case]

    assert find(ranks)[0] == root_cause


STACKS = {
    "in a collective": ((ALL_REDUCE, CELL), True),
    "in a collective of objects": (((f"{PADDLE}/framework/io.py", "load"), ALL_REDUCE, CELL), True),
    "meeting the others": (((f"{PADDLE}/distributed/parallel.py", "init_parallel_env"), CELL), True),
    "in a function of the reader that a collective's wrapper calls": ((CELL, ALL_REDUCE), False),
    "in the forward of DataParallel": (
        ((f"{PADDLE}/nn/layer/common.py", "forward"), (f"{PADDLE}/distributed/parallel.py", "forward")),
        False,
    ),
    "in a cell": ((CELL,), False),
    "in another library": ((("/site-packages/numpy/core.py", "dot"), ALL_REDUCE), False),
    "nowhere": ((), False),
}


@pytest.mark.parametrize("where", STACKS)
def test_a_rank_waits_when_its_innermost_frames_are_those_of_a_collective(where: str):
    frames, waits = STACKS[where]

    assert in_collective(frames) is waits


def test_a_rank_waits_where_the_rendezvous_reads_a_file_through_frozen_modules_of_python():
    in_rendezvous = (str(Path(rendezvous.__file__)), "listening")

    assert in_collective((("<frozen codecs>", "decode"), in_rendezvous))
    assert not in_collective((("<frozen codecs>", "decode"), CELL, in_rendezvous))
