"""An error in a case on ranks: it is the answer of the case when every rank raises one, else the run must end.

A rank measures a case like this:

    try:
        found.append(measure(case))
    except Exception as error:
        found.append(error_of_all(error, case.name, dist.get_world_size()))
"""

from __future__ import annotations

import time
from typing import Any

import paddle.distributed as dist

from xpulab.checks.compare import first_line

RAISE_TIMEOUT = 3.0
"""Seconds in which all ranks of a case have raised an error, when one has: otherwise some of them wait in the case."""


def error_of_all(error: Exception, case: str, n: int) -> str:
    """On each of n ranks that raised an error in a case: its type and its most informative line.

    case: unique in the run, and the same on these ranks. Raises RuntimeError when fewer come here within RAISE_TIMEOUT: the
    others may wait for them.
    """
    message = f"{type(error).__name__}: {first_line(error)}"
    if n > 1 and not _all_come(f"xpulab raised {case}", n):
        raise RuntimeError(f"{case}: {message}") from error
    return message


def _all_come(key: str, n: int) -> bool:
    store: Any = dist.collective._default_store
    until = time.monotonic() + RAISE_TIMEOUT
    count = store.add(key, 1)
    while count < n and time.monotonic() < until:
        time.sleep(0.01)
        count = store.add(key, 0)
    return bool(count >= n)
