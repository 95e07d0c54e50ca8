"""Start a child process, limit it, keep its output, and leave nothing of it running. Standard library only; Linux.

    with Child([sys.executable, "script.py"], stdout=log) as child:
        status = child.wait(60.0)  # None: it runs on; the end of the block kills it, with all that it has started

A child leads a session of its own. So Ctrl-C reaches this process only, which then ends the child as it sees fit, and a signal
to the child's group reaches what it has started, too. Its standard input is closed. A process in uninterruptible sleep ignores
SIGKILL until the call of its driver returns: nothing here waits for that.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from xpulab.messages import N_

OUTPUT_LIMIT = 1 << 20
"""Bytes that run() keeps, and of one line."""

CANNOT_BE_KILLED = N_(" and cannot be killed: it waits inside the driver")
"""What a sentence about a child goes on with."""

START = str(Path(__file__).with_name("start.py"))
"""The script that runs a module as `python -m` does, without the current folder on sys.path."""

_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
_PYTHON = ('File "<', f'File "{sysconfig.get_path("stdlib")}/')


def python_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module with this Python, and no code of the current folder."""
    return [sys.executable, START, name, *arguments]


class Child:
    """A child process that leads a session; the end of the block kills what is left of its group.

    pid: the process, and its group. stdin, stdout, stderr: this end of those that are pipes.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start it. options: as of subprocess.Popen. Raises OSError when it cannot be started."""
        self._process = subprocess.Popen(command, start_new_session=True, **{"stdin": subprocess.DEVNULL, **options})
        self.pid = self._process.pid
        self.stdin, self.stdout, self.stderr = self._process.stdin, self._process.stdout, self._process.stderr

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self.close_input()
        for pipe in filter(None, (self.stdout, self.stderr)):
            pipe.close()

    def wait(self, seconds: float = 0.0) -> int | None:
        """The exit status (negative: the signal that ended it); None when it runs on after so many seconds."""
        try:
            return self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def read(self) -> Iterator[tuple[IO[bytes], bytes]]:
        """What it writes to its pipes, as it comes, and b"" now and then, so that the caller can look at the clock.

        Ends when the pipes are closed. What the child has started may hold them open: then when it has ended and nothing comes.
        """
        with selectors.DefaultSelector() as selector:
            for pipe in filter(None, (self.stdout, self.stderr)):
                selector.register(pipe, selectors.EVENT_READ, pipe)
            while pipes := selector.get_map():
                has_ended = self.wait() is not None
                ready = selector.select(_POLL_SECONDS)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    if chunk:
                        yield key.data, chunk
                    else:
                        selector.unregister(key.fileobj)
                if not ready:
                    if has_ended:
                        return
                    yield next(iter(pipes.values())).data, b""

    def lines(self) -> Iterator[bytes | None]:
        """The lines of its only pipe with their ends, and None now and then; a longer one than OUTPUT_LIMIT is divided."""
        rest = b""
        for _, chunk in self.read():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in lines)
            if not lines:
                yield None
            if len(rest) > OUTPUT_LIMIT:
                yield rest
                rest = b""
        if rest:
            yield rest

    def close_input(self, last: bytes = b"") -> None:
        """Close its standard input, when that is a pipe, after these last bytes; nothing happens when it does not read."""
        if self.stdin is not None and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                self.stdin.write(last)

    def send_signal(self, number: int) -> None:
        """A signal to the child alone; nothing happens when it has ended."""
        self._process.send_signal(number)

    def end(self, seconds: float) -> str:
        """Let it end by itself; after so many seconds kill it. Returns as kill does."""
        return self.kill() if self.wait(seconds) is None else ""

    def kill(self, seconds: float = _KILL_SECONDS) -> str:
        """Kill the child and all that is left of its group; returns CANNOT_BE_KILLED when it lives on, else ""."""
        signal_group(self.pid, signal.SIGKILL)
        return CANNOT_BE_KILLED if self.wait(seconds) is None else ""


@dataclass(frozen=True)
class Ran:
    """What came of run().

    status: as of Child.wait, None when it was killed at a limit. output, errors: what it wrote, undecodable bytes replaced.
    is_too_long: whether it was killed because it wrote too much. killed: what kill() returned.
    """

    status: int | None
    output: str
    errors: str
    is_too_long: bool
    killed: str


def run(command: Sequence[str], seconds: float, limit: int = OUTPUT_LIMIT, **options: Any) -> Ran:
    """Run a command for at most so long; limit: bytes that it may write. options and errors as of Child."""
    end = time.monotonic() + seconds
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as child:
        output, errors = bytearray(), bytearray()
        is_too_long = False
        for pipe, chunk in child.read():
            (output if pipe is child.stdout else errors).extend(chunk)
            is_too_long = len(output) + len(errors) > limit
            if is_too_long or time.monotonic() >= end:
                break
        status = None if is_too_long else child.wait(end - time.monotonic())
        killed = child.kill()
    return Ran(status, output.decode(errors="replace"), errors.decode(errors="replace"), is_too_long, killed)


def signal_group(pid: int, number: int) -> bool:
    """A signal to all processes of the group that this process leads; returns whether there is one."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # all that are left run as another user
        pass
    return True


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """This process gets the signal when its parent ends, however that ends."""
    _libc().prctl(_PR_SET_PDEATHSIG, number)


def stack_end(written: str) -> str:
    """Where the stack that faulthandler wrote ends outside of Python's own library, as 'File "...", line 3 in name'; or ""."""
    frames = [line.strip() for line in written.splitlines() if line.strip().startswith('File "')]
    outside = [frame for frame in frames if not frame.startswith(_PYTHON) or "site-packages" in frame]
    return next(iter(outside or frames), "")


@cache
def _libc() -> Any:
    import ctypes  # only who needs it: some Pythons are built without

    return ctypes.CDLL(None)
