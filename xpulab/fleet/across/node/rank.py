"""A rank of one trial: its task starts it, reads what it notes and ends it; it meets the others, connects, runs the sections.

On the CPU and on simulated cards it is a fork of its task, which has imported Paddle; on a GPU or an XPU a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xpulab.checks.compare import first_line
from xpulab.child import end_with_parent, signal_group
from xpulab.devices import SIMULATED
from xpulab.fleet.across import links
from xpulab.fleet.across.links import RankReport
from xpulab.fleet.across.node.job import Found, Job, Notes
from xpulab.fleet.across.node.meeting import met
from xpulab.ranks import environment

FORKED = ("cpu", SIMULATED)
"""Devices whose ranks are forks of the task: a card's driver may not be used on both sides of a fork."""

_PRINTED = 1500


class Running:
    """A rank at work. descriptor: the pipe of its notes, to be read when it has something. end: when its time is over."""

    def __init__(self, trial: int, node: str, job: Job, start_seconds: float) -> None:
        """Start the rank. start_seconds: until it must have imported Paddle; then job.trial_seconds count."""
        self._trial, self._node, self._job = trial, node, job
        self._log = Path(job.folder) / "log"
        self._found, self._rest = Found(), b""
        self.descriptor, write = os.pipe()
        self._pid = self._fork(write) if job.seat.device in FORKED else self._start(write)
        os.close(write)
        self.end = time.monotonic() + start_seconds

    def read(self) -> bool:
        """Read the notes that have arrived; returns whether the rank has ended."""
        data = os.read(self.descriptor, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            before, self._found = self._found, Found(**json.loads(lines[-1]))
            if self._found.started and not before.started:
                self.end = time.monotonic() + self._job.trial_seconds
        return not data

    def report(self, outcome: str = "") -> RankReport:
        """What became of the rank. outcome: LATE or STOPPED when its task ends it, else it has ended."""
        found, reason = self._found, ""
        if outcome == "":
            reason = self._reason_of_end()
            outcome = links.RAISED if found.raised else links.KILLED
            if found.done:
                outcome = links.WRONG if found.bad else links.PASSED
        if outcome == links.LATE:
            reason = f"still at work at the time limit, in: {found.step}"
        elif outcome == links.STOPPED:
            reason = f"ended with the others, in: {found.step}"
        elif outcome == links.WRONG:
            reason = f"{found.bad[0]['name']}: {found.bad[0]['detail']}"
        return RankReport(
            trial=self._trial,
            rank=self._job.seat.rank,
            node=self._node,
            outcome=outcome,
            reason="" if outcome == links.PASSED else found.raised or reason,
            step=found.step,
            steps=found.steps,
            bad=found.bad,
            passed=found.passed,
            skipped=found.skipped,
            rates=found.rates,
            printed="" if outcome == links.PASSED else self._printed(),
        )

    def close(self) -> None:
        """Leave no process, file or descriptor of the rank."""
        if self._pid:
            if not signal_group(self._pid, signal.SIGKILL):
                os.kill(self._pid, signal.SIGKILL)  # it has only just been forked, and leads no group yet
            self._wait()
        os.close(self.descriptor)
        shutil.rmtree(self._job.folder, ignore_errors=True)

    def _reason_of_end(self) -> str:
        if (status := self._wait()) < 0:
            return f"killed by signal {-status} ({signal.Signals(-status).name}), in: {self._found.step}"
        return f"ended with exit code {status}, in: {self._found.step}"

    def _fork(self, write: int) -> int:
        task, pid = os.getpid(), os.fork()
        if pid:
            return pid
        status = 1
        try:
            end_with_parent()
            if os.getppid() != task:  # it ended before
                os._exit(1)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            status = work(self._job, Notes(write))
        finally:
            os._exit(status)

    def _start(self, write: int) -> int:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "xpulab.fleet.across.node.rank", str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write,),
                start_new_session=True,
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            pickle.dump(self._job, process.stdin)
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
            signal_group(self._pid, signal.SIGKILL)
            self._pid, self._status = 0, os.waitstatus_to_exitcode(status)
        return self._status


def new_folder() -> str:
    """A folder for the files of a rank."""
    return tempfile.mkdtemp(prefix="xpulab-links-")


def work(job: Job, notes: Notes) -> int:
    """Be the rank; returns the exit code. Everything that it finds is in the notes."""
    try:
        # here and not for the program that is started: a list of thousands of ranks is too long for its variables
        wanted = environment.of_seat(environment.before_launch(os.environ), job.seat, Path(job.folder))
        os.environ.clear()
        os.environ.update(wanted)
        from xpulab.fleet.across.node import sections
        from xpulab.ranks.inside import select_card

        select_card(job.seat.device, job.seat.local_ranks)
        notes.write(started=True)
        _connect(job, notes)
        sections.run(job, notes)
        notes.write(done=True)
    except BaseException as error:
        notes.write(raised=f"{type(error).__name__}: {first_line(error)}"[:600])
        return 1
    return 0


def _connect(job: Job, notes: Notes) -> None:
    if job.ranks == 1:
        return
    import paddle.distributed as dist

    notes.step(f"meeting at {job.meeting}")
    store_port = int(job.seat.master.rpartition(":")[2])
    with met(job.seat.rank, job.ranks, job.meeting, store_port, job.trial_seconds * 0.7):
        notes.step(f"connecting to {job.seat.master}")
        dist.init_parallel_env()


if __name__ == "__main__":
    sys.exit(work(pickle.load(sys.stdin.buffer), Notes(int(sys.argv[1]))))
