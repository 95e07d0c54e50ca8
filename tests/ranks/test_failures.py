"""A run that fails: the root cause, where each rank was, and that it ends in time whatever a rank does."""

from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType

import cloudpickle
import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks
from xpulab.ranks import watch

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def rank() -> int:
    return int(os.environ["PADDLE_TRAINER_ID"])


def failure(function: Callable[..., object], n: int, *arguments: object, **options: object) -> ranks.RanksFailed:
    with pytest.raises(ranks.RanksFailed) as raised:
        ranks.run(function, n, *arguments, **options)
    return raised.value


def outcomes(failed: ranks.RanksFailed) -> list[str]:
    return [report.outcome for report in failed.reports]


def test_an_exception_is_shown_with_its_rank_its_line_and_its_traceback():
    def work() -> int:
        if rank() == 1:
            raise ValueError("no such thing")  # here
        return rank()

    failed = failure(work, 2)

    assert failed.root_cause == 1
    assert str(failed).startswith("root cause: rank 1: ValueError: no such thing")
    assert outcomes(failed) == ["returned", "raised"]
    assert 'raise ValueError("no such thing")  # here' in failed.reports[1].detail
    assert "xpulab/ranks" not in str(failed)


def test_the_cause_of_an_exception_is_shown_too():
    def work() -> None:
        try:
            {}["absent"]
        except KeyError as error:
            raise ValueError("second") from error

    assert "KeyError: 'absent'" in failure(work, 1).reports[0].detail


def test_all_ranks_with_the_same_mistake_are_all_shown():
    def work() -> None:
        undefined  # noqa: B018, F821

    assert outcomes(failure(work, 3)) == ["raised"] * 3


def test_a_rank_whose_peer_raised_is_shown_where_it_waits():
    def work() -> None:
        dist.init_parallel_env()
        ranks.step(f"rank {dist.get_rank()} entered step 3")
        if dist.get_rank() == 1:
            raise ValueError("boom")
        dist.all_reduce(paddle.ones([1]))

    failed = failure(work, 3)

    assert failed.root_cause == 1
    assert outcomes(failed) == ["late", "raised", "late"]
    assert "dist.all_reduce(paddle.ones([1]))" in failed.reports[0].detail
    assert failed.reports[2].reason.startswith("waits for other ranks")
    assert [report.step for report in failed.reports] == [f"rank {each} entered step 3" for each in range(3)]


def test_a_rank_that_is_killed_is_the_root_cause_of_its_peers_errors():
    def work() -> None:
        dist.init_parallel_env()
        print("before the end")
        if dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(paddle.ones([1]))

    failed = failure(work, 3)

    assert failed.root_cause == 2
    assert failed.reports[2].reason == "killed by signal 9 (SIGKILL)"
    assert "before the end" in failed.reports[2].printed


def test_a_crash_shows_its_python_stack():
    def work() -> None:
        ctypes.string_at(0)

    failed = failure(work, 1)

    assert failed.reports[0].reason == "killed by signal 11 (SIGSEGV)"
    assert "ctypes.string_at(0)" in failed.reports[0].detail


@pytest.mark.parametrize("launch", [False, True])
def test_an_abort_ends_a_rank_without_a_handler_that_asks_for_memory(launch: bool):
    with pytest.raises(ranks.RanksFailed) as raised:
        ranks.run(os.abort, 1, launch=launch)

    assert raised.value.reports[0].reason == "killed by signal 6 (SIGABRT)"
    assert "FatalError" not in str(raised.value)  # Paddle's handler prints it


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_leaves_without_an_error_message_is_the_root_cause(code: int):
    def work() -> None:
        if rank() == 1:
            os._exit(code)

    failed = failure(work, 2)

    assert failed.root_cause == 1
    assert failed.reports[1].reason == f"it ended with exit code {code}, without an error message"


def crashes_at_its_end() -> None:
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: sys.exit("enough"), "SystemExit: enough"),
        (threading.Lock, "what this rank returned, a lock, cannot be sent to the notebook"),
        (crashes_at_its_end, "it has returned, and then: killed by signal 9 (SIGKILL)"),
    ],
    ids=["sys.exit", "a lock", "a crash at the end"],
)
def test_a_rank_without_a_value_has_a_reason(work: Callable[[], object], reason: str):
    assert reason in failure(work, 1).reports[0].reason


def test_a_function_that_the_rank_cannot_import_is_shown_with_its_traceback(monkeypatch: pytest.MonkeyPatch):
    absent = ModuleType("module_of_the_notebook_only")
    exec("def work(): pass", absent.__dict__)
    monkeypatch.setitem(sys.modules, absent.__name__, absent)

    failed = failure(absent.work, 2)

    assert outcomes(failed) == ["raised", "raised"]
    assert failed.reports[0].reason == "ModuleNotFoundError: No module named 'module_of_the_notebook_only'"


def test_a_value_that_cannot_be_unpickled_in_the_rank_is_shown_with_its_traceback():
    class Broken:
        def __reduce__(self) -> tuple:
            return fails_at_the_rank, (os.getpid(),)

    assert "there is no going back" in failure(lambda broken: None, 1, Broken()).reports[0].detail


def fails_at_the_rank(notebook: int) -> None:
    if os.getpid() != notebook:
        raise pickle.UnpicklingError("there is no going back")


def sleeps() -> None:
    time.sleep(1000)


def hangs_in_c() -> None:
    """A thread that locks a mutex twice waits for ever, and as it is called it keeps Python's lock meanwhile."""
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1000)


def ignores_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)


def works_for_ever() -> None:
    while True:
        pass


@pytest.mark.parametrize("hangs", [sleeps, hangs_in_c, stops_itself, ignores_signals, works_for_ever])
def test_a_rank_that_never_arrives_is_found_at_the_time_limit(hangs: Callable[[], None]):
    def work() -> None:
        dist.init_parallel_env()
        if dist.get_rank() == 1:
            hangs()
        dist.barrier()

    failed = failure(work, 2, time_limit=2.0)

    assert failed.root_cause == 1
    assert outcomes(failed) == ["late", "late"]
    assert f"in {hangs.__name__}" in failed.reports[1].detail
    assert "dist.barrier()" in failed.reports[0].detail
    assert failed.reports[0].reason.startswith("waits for other ranks")


def test_a_rank_that_left_too_early_is_the_root_cause_for_those_that_wait():
    def work() -> None:
        dist.init_parallel_env()
        if dist.get_rank() != 1:
            dist.barrier()

    failed = failure(work, 3, time_limit=2.0)

    assert failed.root_cause == 1
    assert "it has returned, while others still wait for it" in str(failed)


def test_a_rank_in_another_collective_is_the_root_cause_for_those_that_wait():
    def work() -> None:
        dist.init_parallel_env()
        value = paddle.ones([1])
        dist.all_reduce(value)
        if dist.get_rank() == 2:
            dist.broadcast(value, src=0)
        else:
            dist.barrier()

    assert failure(work, 3, time_limit=2.0).root_cause == 2


def test_a_rank_that_does_not_meet_the_others_is_the_root_cause():
    def work() -> None:
        if rank() == 0:
            sleeps()
        dist.init_parallel_env()

    failed = failure(work, 3, time_limit=2.0)

    assert failed.root_cause == 0
    assert failed.reports[1].reason.startswith("waits for other ranks")


def test_a_rank_that_does_not_end_has_not_done_its_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "_END_SECONDS", 1.0)

    def work() -> None:
        if rank() == 1:
            threading.Thread(target=sleeps).start()

    failed = failure(work, 2)

    assert failed.root_cause == 1
    assert failed.reports[1].reason == "it has returned, but its process does not end"
    assert "in sleeps" in failed.reports[1].detail


def test_all_threads_of_a_rank_are_shown():
    def work() -> None:
        threading.Thread(target=works_for_ever, daemon=True).start()
        sleeps()

    detail = failure(work, 1, time_limit=1.0).reports[0].detail

    assert detail.index("in sleeps") < detail.index("another thread") < detail.index("in works_for_ever")


def test_a_long_output_ends_with_its_end():
    def work() -> None:
        sys.stdout.write("x" * 5_000_000 + "\nthe end\n")
        raise ValueError

    printed = failure(work, 1).reports[0].printed

    assert printed.endswith("the end\n")
    assert len(printed) < 10_000


def test_a_value_larger_than_any_buffer_arrives():
    assert [len(each) for each in ranks.run(lambda text: text * 2, 2, "x" * 20_000_000)] == [40_000_000] * 2
