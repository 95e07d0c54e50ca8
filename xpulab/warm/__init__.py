"""The fork server: a process that has imported everything once, and forks kernels and ranks from itself.

client: start a fork server, ask it for workers. server: the process itself, and what both send each other. worker: what its
forks become. kernels: Jupyter kernels that are workers; kernel: what runs in one.
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
