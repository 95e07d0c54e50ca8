"""A team: ranks that paddle.distributed.launch starts, for gpu and xpu, and for every device on request, for several calls.

Starting a rank takes Python, the import of Paddle and the start of a card and of its collective library: some 20 s. So the
ranks of a notebook stay, and are as new for each call (reset). A team ends with a call that fails, is interrupted or leaves a
thread behind, with the notebook's process, and when there are others that were used later.

It was tested with the CPU and with simulated cards only, not yet on a GPU or an XPU.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil

from xpulab import warm
from xpulab.child import Child
from xpulab.ranks import environment
from xpulab.ranks.inside import MARK, Job
from xpulab.ranks.outcome import RunOutcome
from xpulab.ranks.reset import is_watched
from xpulab.ranks.watch import Listener, Watch

PORT_RANGE = "PORT_RANGE"
"""The variable from which the launcher takes its ports. The ranks get the notebook's own value back."""

_SCRIPT = str(Path(__file__).parent / "launched_script.py")
_KEPT = 4
"""How many teams stay, of other numbers of ranks or other variables. Each holds some memory of its cards and of the host."""
_teams: dict[tuple[object, ...], Team] = {}
"""By what a rank is started with and cannot change, the one that was used last at the end."""
_one_at_a_time = threading.RLock()


class Team:
    """n ranks of one launcher on this host. folder: where their logs are, workerlog.RANK. launcher: its process. pids: theirs.

    The launcher ends with the notebook, and the ranks with the launcher, however that ends.
    """

    def __init__(self) -> None:
        self.listener, self._owner = Listener(), os.getpid()
        self.pids: list[int | None] = []
        self._cleanup = ExitStack()

    def start(self, address: str, n: int, base: Mapping[str, str]) -> Team:
        """Start the launcher; the ranks connect to the address. Returns this team."""
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._log = self.folder / "launcher.log"
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
            options = ["--nproc_per_node", str(n), "--host", environment.HOST, "--log_dir", str(self.folder)]
            command = [sys.executable, _SCRIPT, "launch", *options, _SCRIPT, "rank", address]
            variables = {**base, PORT_RANGE: environment.range_of_ports(), MARK: address}
            with self._log.open("wb") as log:
                self._launcher = Child(command, env=variables, stdout=log, stderr=log)
            cleanup.callback(self._launcher.kill)
            cleanup.callback(self.listener.close)
            self._cleanup = cleanup.pop_all()
        self.launcher = self._launcher.pid
        return self

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]:
        """Whether a rank has ended, and its exit status, of its process or as the launcher wrote it; None without both."""
        if pid is None:
            return self._launcher.wait() is not None, None
        try:
            has_ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            return has_ended, _status_of_zombie(pid) if has_ended else None
        except psutil.NoSuchProcess:
            told = re.search(rf"Container rank {rank} status .* code (-?\d+) log", self.launcher_log())
            return True, int(told[1]) if told else None

    def launcher_log(self) -> str:
        """What the launcher has written so far."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the launcher, and with it every rank."""
        self._launcher.kill()

    def close(self) -> None:
        """Leave nothing of the team behind; a process that has only inherited it does nothing."""
        if self._owner == os.getpid():
            self._cleanup.close()

    @property
    def is_alive(self) -> bool:
        """Whether it can take a call: none of its processes has ended, and this one has not only inherited it."""
        ended = self._launcher.wait() is not None or any(self.ended(rank, pid)[0] for rank, pid in enumerate(self.pids))
        return self._owner == os.getpid() and not ended


def call(job: Job, base: Mapping[str, str], time_limit: float, fresh: bool) -> RunOutcome:
    """Let ranks run the job, one call at a time: those of a team that was started with the same variables, or of a new one.

    base: what the launcher is started with. fresh: the ranks are new, and end after the call.
    """
    key = job.cards, job.device, *sorted(base.items())
    with _one_at_a_time, environment.held_ports(1) as (port,):
        idle = None if fresh else _idle(key)
        team = idle or Team()
        modules = [name for name in sys.modules if is_watched(name)]
        job = replace(job, modules=modules, store_port=port, is_last=fresh)
        watch = Watch(job.cards, time_limit, job, team.listener)
        began = time.monotonic()
        outcome = watch.run(lambda address: idle or team.start(address, job.cards, base))
        if watch.stay:
            team.pids = [rank.pid for rank in outcome.ranks]
            _teams[key] = team
        if idle is None and (path := os.environ.get(warm.STARTS_OF_RANKS)):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{outcome.started - began:.3f}\n")
        return outcome


def _idle(key: tuple[object, ...]) -> Team | None:
    """The team of this key, taken from those that are kept; None, with room for another one, where there is none."""
    team = _teams.pop(key, None)
    if team is not None and team.is_alive:
        return team
    for ended in [team] if team else [_teams.pop(next(iter(_teams))) for _ in range(len(_teams) - _KEPT + 1)]:
        ended.close()
    return None


@atexit.register
def close_all() -> None:
    """End all teams of this process."""
    while _teams:
        _teams.popitem()[1].close()


def _status_of_zombie(pid: int) -> int | None:
    """Its exit status, negative for a signal; None once it is gone. Source: proc(5), exit_code in /proc/PID/stat."""
    try:
        code = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").split()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return -(code & 0x7F) if code & 0x7F else code >> 8
