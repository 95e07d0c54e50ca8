"""Ranks that are workers of a fork server which has imported Paddle already: for the CPU and for simulated cards."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from xpulab import warm
from xpulab.ranks import environment

_ENTRY = "xpulab.ranks.inside:forked"
_own: tuple[int, warm.ForkServer] | None = None
"""The fork server that this process started, with its process id: a process that was forked from it owns none."""
_one_at_a_time = threading.Lock()


class Forked:
    """n ranks as workers of the fork server. folder: where their logs are, workerlog.RANK. launcher: none."""

    launcher = None

    def __init__(self, address: str, n: int, device: str, base: Mapping[str, str]) -> None:
        """Fork the ranks, rank 0 first; they connect to `address`. Raises what warm.fork does, with nothing left behind."""
        self._cleanup = ExitStack()
        self._workers: list[warm.Worker] = []
        try:
            try:
                self._fork(os.environ.get(warm.ADDRESS) or _own_address(), address, n, device, base)
            except warm.ForkServerGone:
                self.close()
                self._fork(_own_address(), address, n, device, base)
        except BaseException:
            self.close()
            raise

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]:
        """Whether a rank has ended, and its exit status (negative: the signal that ended it)."""
        if rank >= len(self._workers):
            return False, None
        status = self._workers[rank].poll()
        return status is not None, status

    def launcher_log(self) -> str:
        """Nothing: there is no launcher."""
        return ""

    def kill(self) -> None:
        """Kill every rank with its process group."""
        for worker in self._workers:
            worker.kill()

    def close(self) -> None:
        """Leave nothing of the run behind."""
        self._cleanup.close()
        self._workers.clear()

    def _fork(self, fork_server: str, address: str, n: int, device: str, base: Mapping[str, str]) -> None:
        # The fork server removes its folder when it ends, even when this process is killed before it can clean up.
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-", dir=os.path.dirname(fork_server)))
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        ports = self._cleanup.enter_context(environment.held_ports(n + 1))
        for rank in range(n):
            with (self.folder / f"workerlog.{rank}").open("ab") as log:
                worker = warm.fork(
                    fork_server,
                    _ENTRY,
                    address.encode(),
                    environment=environment.of_rank(base, rank, ports, device, self.folder),
                    cwd=os.getcwd(),
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                )
            self._cleanup.callback(worker.close)
            self._workers.append(worker)


def _own_address() -> str:
    """The address of this process's own fork server, which ends with it; it is started where none is running."""
    global _own
    with _one_at_a_time:
        if _own is None or _own[0] != os.getpid() or _own[1].has_ended:
            fork_server = warm.ForkServer()
            atexit.register(fork_server.close)
            _own = (os.getpid(), fork_server)
        return _own[1].address
