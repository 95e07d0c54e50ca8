"""The running step: srun with a task for each card, its messages in the order in which they arrive, and its end."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from xpulab.errors import InputError
from xpulab.fleet.across import links, slurm

GONE = "gone"
"""A kind of message of the step itself: a task has ended. Its fields: node, and reason as srun says it; node "" for all."""

_END_SECONDS = 10.0
_TASK_ENDED = re.compile(r"^srun: error: (?P<node>[^\s:]+): tasks? [\d,\-]+: (?P<reason>.+)$")
_KEPT_LINES = 40

Message = tuple[str, dict[str, Any]]


class Step:
    """A step of Slurm. Use it as a context; its end is the end of all tasks."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._messages: queue.Queue[Message] = queue.Queue()
        self._errors: list[str] = []
        self._step = ""
        try:
            self._srun = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for this process, which then ends the step
            )
        except FileNotFoundError as error:
            raise InputError("srun: not found; this needs Slurm's commands on the PATH") from error
        assert self._srun.stdout is not None and self._srun.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self._srun.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._srun.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, kind: str, body: Any) -> None:
        """Send a message to all tasks; nothing happens when the step has ended."""
        assert self._srun.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._srun.stdin.write(links.dumps(kind, body) + "\n")
            self._srun.stdin.flush()

    def next(self, seconds: float) -> Message | None:
        """The next message of a task or of the step; None when none comes in this time."""
        try:
            return self._messages.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def errors(self) -> str:
        """The last lines that srun, or a task, wrote to standard error."""
        return "\n".join(self._errors[-_KEPT_LINES:])

    def close(self) -> None:
        """End all tasks: by the end of their input, then by scancel, then srun itself."""
        assert self._srun.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._srun.stdin.close()
        if not self._ends() and self._step:
            slurm.cancel(self._step)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._ends():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._srun.pid, number)
        self._srun.wait()
        for thread in self._threads:
            thread.join(_END_SECONDS)
        for stream in (self._srun.stdout, self._srun.stderr):
            if stream is not None:
                stream.close()

    def _ends(self) -> bool:
        try:
            self._srun.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, lines: IO[str]) -> None:
        reader = links.Reader()
        for line in lines:
            if message := reader.read(line):
                if message[0] == links.HELLO:
                    self._step = message[1]["place"]["step"]
                self._messages.put(message)
        self._messages.put((GONE, {"node": "", "reason": "srun has ended"}))

    def _read_errors(self, lines: IO[str]) -> None:
        for line in lines:
            self._errors.append(line.rstrip())
            if ended := _TASK_ENDED.match(line.rstrip()):
                self._messages.put((GONE, {"node": ended["node"], "reason": ended["reason"]}))
