"""Every failure is an error on every rank, in time, that names the call, the communicator and the ranks that caused it."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.integration

FOLDER = Path("/dev/shm")
LONG = np.zeros(3_000_000, np.float32)


def left_by_this_test(creator: int | None = None) -> list[str]:
    """Names of the segments that this process made. Others on this machine may have theirs."""
    names = [path.name for path in FOLDER.glob(f"xpulab-sim-{os.getuid()}-*")]
    return [name for name in names if name.split("-")[5:6] == [str(creator or os.getpid())]]


def all_reduce(group: Any, count: int = 7, type: str = "FLOAT32", op: str = "SUM") -> None:
    data = np.zeros(max(count, 1), np.float64)
    group.all_reduce(data, data, type, op, count)


def of(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


MISMATCHES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None], str, str]] = {
    "kinds": (
        all_reduce,
        lambda group: group.broadcast(of(7), "FLOAT32", 0),
        "all_reduce(7 x FLOAT32, SUM)",
        "broadcast(7 x FLOAT32, root 0)",
    ),
    "counts": (all_reduce, lambda group: all_reduce(group, 8), "7 x FLOAT32", "8 x FLOAT32"),
    "roots": (
        lambda group: group.broadcast(of(7), "FLOAT32", 0),
        lambda group: group.broadcast(of(7), "FLOAT32", 1),
        "root 0",
        "root 1",
    ),
    "long and short": (
        lambda group: group.all_gather(LONG, np.zeros(3 * LONG.size, np.float32), "FLOAT32"),
        lambda group: group.reduce_scatter(of(21), of(7), "FLOAT32", "SUM"),
        "all_gather(3000000 x FLOAT32)",
        "reduce_scatter(7 x FLOAT32, SUM)",
    ),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_mismatch_names_the_call_of_each_rank_on_all_ranks(ranks: Any, name: str) -> None:
    usual, other, text, other_text = MISMATCHES[name]
    ended = ranks.run(3, lambda group: (other if group.rank == 1 else usual)(group))
    for each in ended:
        assert each.error is not None
        assert "ranks 0, 2: " in each.error and "rank 1: " in each.error
        first, second = each.error.split("ranks 0, 2: ")[1].split("; rank 1: ")
        assert text in first and other_text in second


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda group: all_reduce(group, type="COMPLEX64", op="MAX"), "complex numbers have no order"),
        (lambda group: all_reduce(group, type="BOOL", op="AVG"), "AVG of BOOL is not defined"),
        (lambda group: group.broadcast(of(1), "FLOAT32", 5), "rank 5 does not exist"),
        (lambda group: group.exchange("FLOAT32", send=[(of(1), 2)]), "rank 2 does not exist"),
    ],
)
def test_an_invalid_call_is_rejected(ranks: Any, call: Callable[[Any], None], message: str) -> None:
    for each in ranks.run(2, call):
        assert message in each.error


# ---- missing ranks ------------------------------------------------------------------------------------------


def test_a_rank_that_never_joins_is_named(ranks: Any) -> None:
    name = ranks.make_id()
    ended = ranks.collect([ranks.fork(lambda rank: ranks.group(name, 3, rank, 1.0), rank) for rank in (0, 2)])
    for each in ended:
        assert "rank 1 has not joined" in each.error
        assert "comm_init_rank on communicator" in each.error
    assert any("Arrived: 0, 2. Not arrived: 1." in each.error for each in ended)
    assert left_by_this_test() == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([(2, 0), (3, 1)], "the ranks disagree about their number"),
        ([(2, 1), (2, 1)], "two processes joined as rank 1"),
    ],
)
def test_ranks_that_disagree_about_the_communicator(ranks: Any, given: list[tuple[int, int]], message: str) -> None:
    name = ranks.make_id()
    for each in ranks.collect([ranks.fork(lambda one: ranks.group(name, *one, 5.0), one) for one in given]):
        assert message in each.error
    assert left_by_this_test() == []


def waits(group: Any) -> None:
    """Rank 1 never calls the second all_reduce."""
    all_reduce(group)
    if group.rank == 1:
        signal.pause()
    all_reduce(group, 4096)


def test_a_missing_rank_is_named_after_the_timeout(ranks: Any) -> None:
    name = ranks.make_id()
    processes = [ranks.fork(lambda rank: waits(ranks.group(name, 3, rank, 1.0)), rank) for rank in range(3)]
    ended = ranks.collect([processes[0], processes[2]])
    for each in ended:
        assert "all_reduce(4096 x FLOAT32, SUM) on communicator" in each.error
        assert (
            f"rank 1 (process {processes[1]}) is alive (state S), last call: finished all_reduce(7 x FLOAT32, SUM), number 0"
            in each.error
        )
        assert "timed out after 1.0" in each.error and "XPULAB_SIM_TIMEOUT" in each.error
        assert "Arrived: 0, 2. Not arrived: 1." in each.error


def test_a_dead_rank_is_detected_long_before_the_timeout(ranks: Any) -> None:
    name = ranks.make_id()
    processes = [ranks.fork(lambda rank: waits(ranks.group(name, 3, rank, 1000.0)), rank) for rank in range(3)]
    wait_until_asleep(ranks, processes[1])
    os.kill(processes[1], signal.SIGKILL)
    ended = ranks.collect(processes, seconds=30)
    assert ended[1].status == -signal.SIGKILL
    for each in (ended[0], ended[2]):
        assert f"rank 1 (process {processes[1]}) has died" in each.error
    assert left_by_this_test() == []


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_killed_in_the_middle_of_a_collective(ranks: Any, victim: int) -> None:
    """The others are somewhere in a stream of collectives when it dies; all of them end."""
    name = ranks.make_id()
    started, running = os.pipe()

    def forever(rank: int) -> None:
        group = ranks.group(name, 4, rank, 1000.0)
        data = LONG.copy()
        while True:
            group.all_reduce(LONG, data, "FLOAT32", "SUM")
            os.write(running, b".")

    processes = [ranks.fork(forever, rank) for rank in range(4)]
    os.read(started, 1)
    os.kill(processes[victim], signal.SIGKILL)
    ended = ranks.collect(processes, seconds=30)
    os.close(started)
    os.close(running)
    for rank, each in enumerate(ended):
        if rank != victim:
            assert f"rank {victim} (process {processes[victim]}) has died" in each.error
    assert left_by_this_test() == []


# ---- shared memory ---------------------------------------------------------------------------------------------------


def test_nothing_can_be_seen_once_all_have_joined(ranks: Any) -> None:
    assert ranks.values(3, lambda group: (all_reduce(group), left_by_this_test(os.getppid()))[1]) == [[]] * 3


def test_the_segments_of_a_crashed_run_are_removed_by_the_next(ranks: Any) -> None:
    def crash() -> list[str]:
        ranks.make_id()  # no rank joins
        return left_by_this_test()

    (crashed,) = ranks.collect([ranks.fork(crash)])
    (left,) = crashed.value
    mine = Path(FOLDER, ranks.make_id().decode())
    assert not Path(FOLDER, left).exists()
    assert mine.exists()
    mine.unlink()


def test_a_segment_in_use_is_not_removed(ranks: Any) -> None:
    """Its creator has ended, but one rank has joined and waits for the other."""
    told, tell = os.pipe()
    may_end, let_it_end = os.pipe()

    def create() -> None:
        """End only when the first rank has joined: until then any run on this machine may remove the segment."""
        os.write(tell, ranks.make_id())
        os.read(may_end, 1)

    creator = ranks.fork(create)
    name = os.read(told, 200)
    first = ranks.fork(lambda: ranks.group(name, 2, 0).all_gather(of(1), of(2), "FLOAT32"))
    wait_until_asleep(ranks, first)
    os.write(let_it_end, b".")
    assert ranks.collect([creator])[0].error is None
    ranks.remove_stale()
    second = ranks.fork(lambda: ranks.group(name, 2, 1).all_gather(of(1), of(2), "FLOAT32"))
    assert [each.error for each in ranks.collect([first, second])] == [None, None]
    for end in (told, tell, may_end, let_it_end):
        os.close(end)


def test_a_full_dev_shm_is_an_error_and_not_a_crash(ranks: Any) -> None:
    """A limit on the size of files stands for a full /dev/shm: the same call fails."""
    name = ranks.make_id()

    def limited(rank: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        ranks.group(name, 2, rank, 10.0)

    errors = [each.error for each in ranks.collect([ranks.fork(limited, rank) for rank in range(2)])]
    no_space = [error for error in errors if "not enough space in /dev/shm for a communicator" in error]
    assert no_space
    assert all(re.search(r"it needs \d{6,} bytes, \d+ are free", error) for error in no_space)
    late = [error for error in errors if error not in no_space]
    assert all("joining failed on another rank (see its error)" in error for error in late)
    assert left_by_this_test() == []


def wait_until_asleep(ranks: Any, process: int) -> None:
    """Wait until a rank sleeps in a wait."""
    until = time.monotonic() + 20
    asleep = 0
    while asleep < 3 and time.monotonic() < until:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.02)  # between looks; there is no event for another process falling asleep
