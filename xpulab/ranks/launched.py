"""Ranks that are started by paddle.distributed.launch: for gpu and xpu, and for every device on request.

It was tested with the CPU and with simulated cards only, not yet on a GPU or an XPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from xpulab.child import Child
from xpulab.ranks import environment

PORT_RANGE = "PORT_RANGE"
"""The variable from which the launcher takes its ports. The ranks get the notebook's own value back."""

_ROOT = str(Path(__file__).resolve().parents[2])
_SCRIPT = str(Path(__file__).parent / "launched_rank.py")
_GUARD = (
    "import sys; sys.path[:1] = []; sys.path.append(sys.argv[1])\n"
    "from xpulab.ranks.guard import main; sys.exit(main(*sys.argv[2:]))"
)
_END_SECONDS = 10.0
_ENDED = "Z"
_STATE, _EXIT_CODE = 0, 49
"""Places in /proc/PID/stat, counted from behind the command's name."""


class Launched:
    """n ranks of one launcher on this host. folder: where their logs are, workerlog.RANK."""

    def __init__(self, address: str, n: int, device: str, base: Mapping[str, str]) -> None:
        """Start the launcher; the ranks connect to `address`."""
        self._cleanup = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._log = self.folder / "launcher.log"
        try:
            self._start(address, n, base)
        except BaseException:
            self._cleanup.close()
            raise

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]:
        """Whether a rank has ended, and its exit status (negative: a signal); None: unknown, reaped by its parent."""
        if pid is None:
            return self._guard.wait() is not None, None
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return True, None
        if fields[_STATE] == _ENDED:
            return True, os.waitstatus_to_exitcode(int(fields[_EXIT_CODE]))
        return False, None

    def launcher_log(self) -> str:
        """What the launcher has written so far."""
        try:
            return self._log.read_text(errors="replace")
        except OSError:
            return ""

    def kill(self) -> None:
        """Write a byte to the guard's standard input and close it, at which it ends everything."""
        self._guard.close_input(b".")

    def close(self) -> None:
        """Leave nothing of the run behind."""
        self._cleanup.close()

    def _start(self, address: str, n: int, base: Mapping[str, str]) -> None:
        ports = self._cleanup.enter_context(environment.reserved_range())
        guard = [sys.executable, "-c", _GUARD, _ROOT, str(os.getpid()), str(self.folder)]
        launch = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(n), "--host", environment.HOST]
        with self._log.open("wb") as log:
            command = [*guard, *launch, "--log_dir", str(self.folder), _SCRIPT, address]
            self._guard = Child(command, env={**base, PORT_RANGE: ports}, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self._cleanup.callback(self._end)

    def _end(self) -> None:
        self.kill()
        self._guard.end(_END_SECONDS)
