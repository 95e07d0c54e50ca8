"""Cases of a grid on ranks: all of them in one start, and trainings beside one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle.distributed as dist

from xpulab import ranks
from xpulab.chapters.shared.error_of_all import error_of_all
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case

START = "start "
"""What the name of a weight begins with where its value is that before the first step."""

LOSSES = "losses"


def on_ranks(
    measure: Callable[[Case], Any], n: int, cases: Sequence[Case], device: str, size: Callable[[Case], int] | None = None
) -> list[list[Any] | str]:
    """Of each case what the measure returns on each of its ranks, or the error that it raised on all of them.

    size: how many of the n ranks a case has, the first ones; None for all. Raises RanksFailed where only some raised an error.
    """
    of_ranks = ranks.run(_run, n, measure, list(cases), size or (lambda case: n), device=device, time_limit=300.0)
    answers = [[of_rank[number] for of_rank in of_ranks if of_rank[number] is not None] for number in range(len(cases))]
    return [next((each for each in of_case if isinstance(each, str)), of_case) for of_case in answers]


def _run(measure: Callable[[Case], Any], cases: Sequence[Case], size: Callable[[Case], int]) -> list[Any]:
    """On a rank: the measure of each case, an error as text, None where the rank has no part in a case."""
    dist.init_parallel_env()
    found: list[Any] = []
    for case in cases:
        if dist.get_rank() >= size(case):
            found.append(None)
            continue
        ranks.step(case.name)
        try:
            found.append(measure(case))
        except Exception as error:
            found.append(error_of_all(error, case.name, size(case)))
    return found


def as_one_process(found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray], coarse: float) -> Compared:
    """A training on ranks beside that of one process: the way of each weight, in units of its longest, and the losses.

    found: the weights at the end, and LOSSES where they are compared. exact: the same, and with START those before training.
    coarse: what products round on this device, 0 where they keep all bits. The control is nine tenths of each.
    """
    got, right, bound = {}, {}, {}
    for name in exact:
        if name.startswith(START):
            continue
        start, unit = exact.get(START + name, np.zeros(1)), 1.0
        if name != LOSSES:
            unit = float(np.abs(exact[name] - start).max()) or 1.0
        got[name], right[name] = ((each[name] - start) / unit for each in (found, exact))
        # a way is at most 1; a loss of squared errors may be thousands, and float32 rounds it by 6e-8 of itself in each sum
        bound[name] = 1e-4 + 8 * coarse + (1e-6 * np.abs(right[name]) if name == LOSSES else 0.0)
    return Compared(got, right, bound, {name: 0.9 * value for name, value in right.items()})
