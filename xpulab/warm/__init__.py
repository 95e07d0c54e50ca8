"""The fork server: a process that has imported everything once, and forks kernels and ranks from itself.

client: start a fork server, ask it for workers. server: the process itself. kernels: Jupyter kernels that it forks.
"""

from xpulab.warm.client import ADDRESS, PRELOAD, ForkServer, ForkServerGone, Worker, fork

__all__ = ["ADDRESS", "PRELOAD", "ForkServer", "ForkServerGone", "Worker", "fork"]
