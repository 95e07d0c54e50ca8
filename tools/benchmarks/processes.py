"""Runs a command and measures it with all processes that it starts: seconds, processor time, memory. For the other benchmarks.

Linux only. The process that measures becomes the parent of every orphan of the command (a subreaper), so that none is missed in
the processor time and none is left behind. It must have no other child processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_SAMPLE_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""What the command has started may take this long to end after it."""
_OUTPUT_CHARACTERS = 20_000


@dataclass(frozen=True)
class Measured:
    """What a command used.

    exit_code: as of subprocess.Popen; None at the timeout. seconds: by the clock, until the command itself ended.
    processor_seconds: user and system time of the command and of all processes that it started, killed ones included.
    memory_mib: how much less memory was available on the machine while it ran, at most; a busy machine makes it wrong.
    left_behind: processes that still ran ten seconds after it, and were killed. output: the end of what it printed.
    """

    exit_code: int | None
    seconds: float
    processor_seconds: float
    memory_mib: float
    left_behind: int
    output: str

    def to_json(self) -> dict[str, Any]:
        """All but the output."""
        return {name: value for name, value in asdict(self).items() if name != "output"}


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float) -> Measured:
    """Run the command in the folder, with nothing on its standard input; it is killed at the timeout, in seconds."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as output, _Memory() as memory:
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            ended = _reap(process, timeout)
        finally:
            _kill_all()
        output.seek(0)
        text = output.read().decode(errors="replace")[-_OUTPUT_CHARACTERS:]
    exit_code = None if ended.timed_out else process.returncode
    return Measured(
        exit_code, round(ended.at - started, 2), round(ended.used, 2), round(memory.most_mib), ended.left_behind, text
    )


@contextlib.contextmanager
def cores(count: int) -> Iterator[None]:
    """In this block commands run on the first `count` cores that this process may use; it must have so many."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def plain_environment(folder: Path) -> dict[str, str]:
    """This process's variables for a command that a user starts: without those of a run, temporary files below the folder.

    OMP_NUM_THREADS is left out: each tool has its own default.
    """
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    unwanted = {"OMP_NUM_THREADS", "XPULAB_WARM", "XPULAB_RUN_FOLDER", "JUPYTER_PATH"}
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "TMPDIR": str(temporary), "JUPYTER_RUNTIME_DIR": str(temporary / "runtime")}


def end_cleanly_when_terminated() -> None:
    """SIGTERM and SIGHUP end this process as Ctrl-C does: what it has started is killed first."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@dataclass
class _End:
    """at: time.monotonic() when the command ended. used: processor seconds of all that were reaped."""

    at: float = 0.0
    used: float = 0.0
    left_behind: int = 0
    timed_out: bool = False


def _reap(process: subprocess.Popen[bytes], timeout: float) -> _End:
    """Wait for the command, then for what it left; returns when no child is left."""
    end = _End()

    def time_is_up() -> None:
        end.timed_out = True
        _kill_all()

    def grace_is_over() -> None:
        end.left_behind = len(_alive())
        _kill_all()

    limit, grace = threading.Timer(timeout, time_is_up), threading.Timer(_GRACE_SECONDS, grace_is_over)
    limit.start()
    try:
        while True:
            try:
                pid, status, used = os.wait4(-1, 0)
            except ChildProcessError:
                return end
            end.used += used.ru_utime + used.ru_stime
            if pid == process.pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                end.at = time.monotonic()
                limit.cancel()
                grace.start()
    finally:
        limit.cancel()
        grace.cancel()


def _kill_all() -> None:
    """Kill all processes below this one; the main thread reaps them, or their end is awaited there."""
    while alive := _alive():
        for each in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        time.sleep(0.01)


def _alive() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


class _Memory:
    """Samples how much memory is available; costs less than a thousandth of a core."""

    def __init__(self) -> None:
        self.most_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Memory:
        self._before = psutil.virtual_memory().available
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.most_mib = max(self.most_mib, (self._before - psutil.virtual_memory().available) / 2**20)
