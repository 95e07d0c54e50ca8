"""The fork server: a process that has imported everything once, and forks kernels and ranks from itself.

client: start a fork server, ask it for workers. server: the process itself. worker: what its forks become. protocol: the
packets between them. kernels: Jupyter kernels that are workers. measured: the processor time that such a kernel
reports for each cell.
"""

from xpulab.warm.client import (
    ADDRESS,
    PRELOAD,
    RUN_FOLDER,
    ForkServer,
    ForkServerGone,
    Worker,
    answers,
    fork,
    seconds_of_workers,
)

__all__ = [
    "ADDRESS",
    "PRELOAD",
    "RUN_FOLDER",
    "ForkServer",
    "ForkServerGone",
    "Worker",
    "answers",
    "fork",
    "seconds_of_workers",
]
