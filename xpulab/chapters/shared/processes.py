"""Run a function once for each of several cases, every time in a new process, as after a crash or on another day.

A GPU or an XPU can often be used by one process only. `run_each` then stays in this process; `run_each_apart` and `ends_of`,
whose functions may end or restrict their process, use the CPU. `side_by_side` is for runs of ranks that mostly wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from xpulab import ranks
from xpulab.devices import SIMULATED, judged_as
from xpulab.records.usable import whole_cores

AT_MOST = 4
"""How many processes run at the same time, unless a caller allows fewer."""
WAITING_FOR_EACH_CORE = 3
"""How many runs of ranks at the same time: while their ranks connect to each other they wait, and compute nothing."""
SECONDS = 200
"""The time limit of one process, unless a caller gives another."""


def run_each(
    function: Callable[[Any], Any], cases: Iterable[Any], device: str, at_once: int = AT_MOST, seconds: float = SECONDS
) -> list[Any]:
    """function(case) for each case, each in a new process; on a GPU or an XPU one after the other in this process.

    device: the name of the device in use. at_once: how many processes at the same time. seconds: the time limit of each.
    Raises RanksFailed when a process fails.
    """
    if device != forked_device(device):
        return [function(case) for case in cases]
    return run_each_apart(function, cases, device, at_once, seconds)


def run_each_apart(
    function: Callable[[Any], Any], cases: Iterable[Any], device: str, at_once: int = AT_MOST, seconds: float = SECONDS
) -> list[Any]:
    """function(case) for each case, each in a new process, on the CPU where `device` is a GPU or an XPU.

    Raises RanksFailed when a process fails.
    """

    def run(case: Any) -> Any:
        return ranks.run(function, 1, case, device=forked_device(device), time_limit=seconds)[0]

    return _in_threads(run, cases, min(at_once, whole_cores()))


def run_in_turn(
    function: Callable[[Any], Any], cases: Sequence[Any], device: str, run: Callable[..., list[Any]] = run_each
) -> list[Any]:
    """function(case) for each case, in as many new processes as run at the same time, each of which takes its cases in turn.

    For cases that leave nothing behind in their process, which so starts once for several of them. run: run_each or
    run_each_apart.
    """
    parts = max(1, min(AT_MOST, whole_cores(), len(cases)))

    def run_part(start: int) -> list[Any]:
        return [function(case) for case in cases[start::parts]]

    found = run(run_part, range(parts), device)
    return [found[number % parts][number // parts] for number in range(len(cases))]


def ends_of(function: Callable[[Any], Any], cases: Sequence[Any], device: str) -> list[str]:
    """How each process ended that called function(case), as text: "signal 9", an error, or "it returned"."""

    def end(case: Any) -> str:
        try:
            run_each_apart(function, [case], device)
        except ranks.RanksFailed as failed:
            return failed.reports[0].reason
        return "it returned"

    return _in_threads(end, cases, min(AT_MOST, whole_cores()))


def side_by_side(runs: Iterable[Callable[[], Any]], device: str) -> list[Any]:
    """What each function returns, in their order; each calls ranks.run, and all of them wait at the same time.

    device: the name of the device in use. On a GPU or an XPU, whose cards one run needs for itself, one run after the other.
    Raises what the first function that fails raises, when all have ended.
    """
    if device != forked_device(device):
        return [run() for run in runs]
    return _in_threads(lambda run: run(), runs, WAITING_FOR_EACH_CORE * whole_cores())


def forked_device(device: str) -> str:
    """The device of new processes: the given one where starting a process takes no time, else the CPU."""
    return device if judged_as(device) in ("cpu", SIMULATED) else "cpu"


def _in_threads(work: Callable[[Any], Any], cases: Iterable[Any], at_once: int) -> list[Any]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(work, cases))
