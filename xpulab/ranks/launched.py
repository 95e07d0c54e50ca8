"""Ranks that are started by paddle.distributed.launch: for gpu and xpu, and for every device on request.

It was tested with the CPU and with simulated cards only, not yet on a GPU or an XPU.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil

from xpulab.child import Child
from xpulab.ranks import environment
from xpulab.ranks.inside import MARK

PORT_RANGE = "PORT_RANGE"
"""The variable from which the launcher takes its ports. The ranks get the notebook's own value back."""

_SCRIPT = str(Path(__file__).parent / "launched_script.py")


class Launched:
    """n ranks of one launcher on this host. folder: where their logs are, workerlog.RANK.

    The launcher ends with the notebook, and the ranks with the launcher, however that ends.
    """

    def __init__(self, address: str, n: int, device: str, base: Mapping[str, str]) -> None:
        """Start the launcher; the ranks connect to `address`."""
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._log = self.folder / "launcher.log"
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
            options = ["--nproc_per_node", str(n), "--host", environment.HOST, "--log_dir", str(self.folder)]
            command = [sys.executable, _SCRIPT, "launch", *options, _SCRIPT, "rank", address]
            with self._log.open("wb") as log:
                self._launcher = Child(
                    command, env={**base, PORT_RANGE: environment.range_of_ports(), MARK: address}, stdout=log, stderr=log
                )
            cleanup.callback(self._launcher.kill)
            self._cleanup = cleanup.pop_all()

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]:
        """Whether a rank has ended; its exit status is known to the launcher only."""
        if pid is None:
            return self._launcher.wait() is not None, None
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, None
        except psutil.NoSuchProcess:
            return True, None

    def launcher_log(self) -> str:
        """What the launcher has written so far."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the launcher, and with it every rank."""
        self._launcher.kill()

    def close(self) -> None:
        """Leave nothing of the run behind."""
        self._cleanup.close()
