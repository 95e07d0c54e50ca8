"""The rank of a task while it works: started as a fork or as a new process, its notes, its end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xpulab.devices import SIMULATED
from xpulab.fleet.across import links
from xpulab.fleet.across.links import CheckLine, RankReport
from xpulab.fleet.across.node import notes
from xpulab.fleet.across.node.member import Job, work

FORKED = ("cpu", SIMULATED)
"""Devices whose ranks are forks of the task: a card's driver may not be used on both sides of a fork."""

_PR_SET_PDEATHSIG = 1
_PRINTED = 1500
_MOST_BAD = 10


class Running:
    """A rank at work. descriptor: the pipe of its notes, to be read when it has something."""

    def __init__(self, trial: int, node: str, job: Job, start_seconds: float) -> None:
        """Start the rank. start_seconds: until it must have imported Paddle; then job.trial_seconds count."""
        self._trial, self._node, self._job = trial, node, job
        self._log = Path(job.folder) / "log"
        self._steps: list[str] = []
        self._bad: list[CheckLine] = []
        self._passed, self._skipped, self._rates = 0, dict[str, str](), dict[str, float]()
        self._raised, self._done, self._rest = "", False, b""
        self.descriptor, write = os.pipe()
        self._pid = self._fork(write) if job.seat.device in FORKED else self._start(write)
        os.close(write)
        self.end = time.monotonic() + start_seconds

    def read(self) -> bool:
        """Read the notes that have arrived; returns whether the rank has ended."""
        data = os.read(self.descriptor, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return not data

    def report(self, outcome: str = "") -> RankReport:
        """End the rank, and say what became of it. outcome: LATE or STOPPED when its task ends it."""
        reason = self._reason_of_end(outcome)
        if outcome == "":
            outcome = links.RAISED if self._raised else links.KILLED
            if self._done:
                outcome = links.WRONG if self._bad else links.PASSED
        if self._bad and outcome == links.WRONG:
            reason = f"{self._bad[0].name}: {self._bad[0].detail}"
        return RankReport(
            trial=self._trial,
            rank=self._job.seat.rank,
            node=self._node,
            outcome=outcome,
            reason="" if outcome == links.PASSED else self._raised or reason,
            step=self._steps[-1] if self._steps else "start",
            steps=len(self._steps),
            bad=tuple(self._bad[:_MOST_BAD]),
            passed=self._passed,
            skipped=self._skipped,
            rates=self._rates,
            printed="" if outcome == links.PASSED else self._printed(),
        )

    def close(self) -> None:
        """Leave no process, file or descriptor of the rank."""
        self._kill()
        os.close(self.descriptor)
        shutil.rmtree(self._job.folder, ignore_errors=True)

    def _take(self, note: dict) -> None:
        kind = note["kind"]
        if kind == notes.STARTED:
            self.end = time.monotonic() + self._job.trial_seconds
        elif kind == notes.STEP:
            self._steps.append(note["name"])
        elif kind == notes.CHECK and note["outcome"] == "passed":
            self._passed += 1
        elif kind == notes.CHECK:
            self._bad.append(CheckLine(note["name"], note["outcome"], note["detail"]))
        elif kind == notes.SKIP:
            self._skipped[note["name"]] = note["reason"]
        elif kind == notes.RATE:
            self._rates[note["name"]] = note["value"]
        elif kind == notes.RAISED:
            self._raised = note["reason"]
        elif kind == notes.DONE:
            self._done = True

    def _reason_of_end(self, outcome: str) -> str:
        step = self._steps[-1] if self._steps else "starting"
        if outcome == links.LATE:
            return f"still at work at the time limit, in: {step}"
        if outcome == links.STOPPED:
            return f"ended with the others, in: {step}"
        status = self._wait()
        ended = (
            f"killed by signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"ended with exit code {status}"
        )
        return f"{ended}, in: {step}"

    def _fork(self, write: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            _end_with(os.getppid())
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            status = work(self._job, notes.Notes(write))
        finally:
            os._exit(status)

    def _start(self, write: int) -> int:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "xpulab.fleet.across.node.member", str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write,),
                start_new_session=True,
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(self._job.dumps().encode())
        process.returncode = 0  # it is waited for here, not by the object
        return process.pid

    def _printed(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")[-_PRINTED:]
        return ""

    def _wait(self) -> int:
        """Wait for the end of the process; returns its exit status, negative for a signal."""
        if self._pid:
            _, status = os.waitpid(self._pid, 0)
            self._kill_group(self._pid)
            self._pid, self._status = 0, os.waitstatus_to_exitcode(status)
        return self._status

    def _kill(self) -> None:
        if self._pid:
            self._kill_group(self._pid)
            self._wait()

    @staticmethod
    def _kill_group(pid: int) -> None:
        """The rank is a session of its own, so a group with what it has started."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """This process is killed when its task ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def new_folder() -> str:
    """A folder for the files of a rank."""
    return tempfile.mkdtemp(prefix="xpulab-links-")
