"""Cases of a grid on ranks, all of them in one start; an error is the answer of a case when every rank of it raises one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import paddle.distributed as dist

from xpulab import ranks
from xpulab.checks.compare import format_error
from xpulab.checks.grid import Case

RAISE_TIMEOUT = 3.0
"""Seconds in which all ranks of a case have raised an error, when one has: otherwise some of them wait in the case."""


def on_ranks(
    measure: Callable[[Case], Any],
    n: int,
    device: str,
    compare: Callable[[Case, list[Any]], Any],
    members: Callable[[Case], Collection[int]],
    start: Callable[[Sequence[Case]], Any] = lambda cases: None,
) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`, of a function that measures a case on each of its ranks.

    compare: from what these returned to the value of the case; an error that all of them raised, or a text that one returned,
    is the value itself. members: of a case its ranks, of n. start: what each rank does first, for all cases.
    The run raises RanksFailed where only some raised an error.
    """

    def run(cases: Sequence[Case]) -> list[Any]:
        of_ranks = ranks.run(_run, n, measure, list(cases), members, start, device=device, time_limit=300.0)
        answers = [[of_ranks[rank][case.name] for rank in sorted(members(case))] for case in cases]
        texts = [next((each for each in of_case if isinstance(each, str)), None) for of_case in answers]
        found = zip(cases, answers, texts, strict=True)
        return [compare(case, of_case) if text is None else text for case, of_case, text in found]

    return run


def _run(
    measure: Callable[[Case], Any],
    cases: Sequence[Case],
    members: Callable[[Case], Collection[int]],
    start: Callable[[Sequence[Case]], Any],
) -> dict[str, Any]:
    """On a rank: by name of each case that it has a part in what it measures, an error as text."""
    dist.init_parallel_env()
    start(cases)
    found: dict[str, Any] = {}
    for case in cases:
        if dist.get_rank() in (own := members(case)):
            ranks.step(case.name)
            try:
                found[case.name] = measure(case)
            except Exception as error:  # only what data/refusals.yaml declares is left out, all other errors are red
                found[case.name] = error_of_all(error, case.name, len(own))
    return found


def error_of_all(error: Exception, case: str, n: int) -> str:
    """On each of n ranks that raised an error in a case: its type and its most informative line.

    case: unique in the run, and the same on these ranks. Raises RuntimeError when fewer come here within RAISE_TIMEOUT: the
    others may wait for them.
    """
    message, key = format_error(error), f"xpulab raised {case}"
    if n == 1:
        return message
    store: Any = dist.collective._default_store
    until = time.monotonic() + RAISE_TIMEOUT
    count = store.add(key, 1)
    while count < n:
        if time.monotonic() >= until:
            raise RuntimeError(f"{case}: {message}") from error
        time.sleep(0.01)
        count = store.add(key, 0)
    return message
