"""Run a function that is defined in a cell on several ranks, as paddle.distributed.launch would run a script.

    def work(factor):
        dist.init_parallel_env()
        ...
        ranks.step("entered step 3")
        return losses

    losses_of_rank = ranks.run(work, 4, 2.0, device=here.name)

On the CPU and on simulated cards the ranks are workers of a fork server that has imported Paddle already (xpulab.warm). On
a GPU or an XPU paddle.distributed.launch starts them, once for a notebook: they stay as a team, and are as new for each call
(xpulab.ranks.team). Both give the function the same environment. Nothing is left of a run that fails, nor of a notebook's end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from xpulab.devices import DEVICES, MOST_CARDS, REAL, SIMULATED, judged_as
from xpulab.errors import InputError
from xpulab.ranks import serialize
from xpulab.ranks.inside import Job, step
from xpulab.ranks.report import RankReport, RanksFailed, RanksInterrupted, failure_of

__all__ = ["RankReport", "RanksFailed", "RanksInterrupted", "Results", "run", "step"]

_FORKED = ("cpu", SIMULATED)


class Results(list):
    """What each rank returned, in the order of the ranks. printed: what each wrote to standard output and error.

    It is not shown by itself: how the lines of several processes mix differs from run to run.
    """

    def __init__(self, values: list[Any], printed: list[str]) -> None:
        super().__init__(values)
        self.printed = printed


def run(
    function: Callable[..., Any],
    n: int,
    *arguments: Any,
    device: str = "cpu",
    time_limit: float = 60.0,
    launch: bool | None = None,
    fresh: bool = False,
) -> Results:
    """Call function(*arguments) on n ranks, and return what each returned, in the order of the ranks.

    function: may be defined in a cell, and use what other cells define. It finds the environment of
    paddle.distributed.launch and its device chosen, and calls dist.init_parallel_env() itself where it needs it.
    time_limit: seconds, from when the first rank has entered the function. launch: start the ranks with
    paddle.distributed.launch, or fork them; by default what suits the device. fresh: the processes are new ones also where
    they are launched, for a function that changes what a team does not undo (xpulab.ranks.reset).
    Tensors arrive at the ranks, and come back, on the device that is in use there.
    Raises RanksFailed when not every rank returned, RanksInterrupted at an interrupt, and InputError for invalid arguments.
    """
    launch = _checked(n, device, time_limit, launch)
    from xpulab.ranks import stacks, team
    from xpulab.ranks.forked import Forked
    from xpulab.ranks.watch import Listener, Watch

    variables = {team.PORT_RANGE: os.environ.get(team.PORT_RANGE)}
    call = serialize.dumps_call(function, arguments)
    job = Job(call, device, n, list(sys.path), os.getcwd(), stacks.sources_of_cells(), variables)
    base = _base(n, device)
    if launch:
        outcome = team.call(job, base, time_limit, fresh)
    else:
        outcome = Watch(n, time_limit, job, Listener()).run(lambda address: Forked(address, n, device, base))
    if not outcome.succeeded:
        raise failure_of(outcome) from None
    values = [serialize.loads_result(rank.number, rank.value or b"") for rank in outcome.ranks]
    return Results(values, [rank.printed for rank in outcome.ranks])


def _checked(n: int, device: str, time_limit: float, launch: bool | None) -> bool:
    """Whether to launch; raises InputError for invalid arguments."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_CARDS:
        raise InputError(f"{n!r} ranks: give a whole number from 1 to {MOST_CARDS}")
    if device not in DEVICES:
        raise InputError(f"no device {device!r}: choose {', '.join(DEVICES)}, or give use_device(...).name")
    if not time_limit > 0:
        raise InputError(f"a time limit of {time_limit!r} s: give a number of seconds above 0")
    if judged_as(device) in _FORKED:
        return bool(launch)
    if launch is False:
        raise InputError(f"ranks on {device} cannot be forked, only launched: leave launch out")
    if device in REAL:
        from xpulab.doctor.paddle_facts import card_count

        if (available := card_count(device)) < n:
            raise InputError(f"{n} ranks on {device}: Paddle sees {available} cards here; give fewer ranks or another device")
    return True


def _base(n: int, device: str) -> dict[str, str]:
    """The variables that the launcher would be started with."""
    from xpulab.ranks import environment

    if device != SIMULATED:
        return environment.before_launch(os.environ)
    from xpulab import sim

    return {**environment.before_launch(os.environ), **sim.environment(n)}
