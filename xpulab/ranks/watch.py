"""Watching the ranks of one run: what each sends, when each ends, the time limit, and that nothing is left running.

A rank connects to the notebook (multiprocessing.connection). A thread for each rank receives, so that nothing here waits for a
rank, whatever that does. A message is (kind, time.monotonic() at which it was sent, value):

    rank -> notebook   ("hello", at, (rank, pid)), ("entered", at, None), ("step", at, text), and ("returned", at, bytes) or
                       ("raised", at, Raised); of a team then ("stays", at, None), if it can take another call
    notebook -> rank   the Job, and RETURNED when all ranks have returned

A rank ends when it gets RETURNED, or when the connection is closed. One that stays has already connected for the next call.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import psutil

from xpulab.ranks import stacks
from xpulab.ranks.inside import MARK, Job, stack_file
from xpulab.ranks.outcome import RETURNED, Rank, RunOutcome

_START_SECONDS = 120.0
"""Until the first rank has entered the function: a launcher, Python and Paddle have to start."""
_GRACE_SECONDS = 2.0
"""After a rank has failed, the others get this long to fail, too, for a reason of their own."""
_STACK_SECONDS = 1.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.25
_READ_SECONDS = 1.0
"""What a rank that has ended sent last is waited for so long; what it has started may hold the connection open."""
_OUTPUT_BYTES = 1 << 20
_KILL_ROUNDS = 5
"""What is killed may have started something meanwhile."""
_CREDENTIALS = struct.Struct("3i")


class Starter(Protocol):
    """Ranks that were started: forked.Forked or team.Team. launcher: the process that is their parent, if there is one."""

    folder: Path

    @property
    def launcher(self) -> int | None: ...

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]: ...
    def launcher_log(self) -> str: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Listener:
    """Where ranks connect to the notebook. address: it is in no folder, so nothing is left; it ends with its process."""

    def __init__(self) -> None:
        self.address = f"xpulab-ranks-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind("\0" + self.address)
        self._socket.listen(64)

    def accept(self) -> Connection:
        """The next connection of a process of this user. Raises OSError when the listener is closed."""
        while True:
            connected, _ = self._socket.accept()
            peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(peer)[1] == os.getuid():
                return Connection(connected.detach())
            connected.close()

    def close(self) -> None:
        """Connections that were not accepted are refused, and accept() returns."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Watch:
    """One run, from its start to its end. Use it once."""

    def __init__(self, n: int, time_limit: float, job: Job, listener: Listener) -> None:
        """listener: where the ranks connect; it is closed unless all of them stay."""
        self._ranks = [Rank(number) for number in range(n)]
        self._limit, self._job, self._listener = time_limit, job, listener
        self._messages: queue.SimpleQueue[tuple[Rank, str, float, Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._interrupted = False

    def run(self, start: Callable[[str], Starter]) -> RunOutcome:
        """start(address) starts the ranks, which connect to it. However this ends, no rank is left that does not stay."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._join_threads)
            stack.callback(self._close, self._listener.close)
            self._in_thread(self._accept)
            self._starter = start(self._listener.address)
            stack.callback(self._close, self._starter.close)
            stack.enter_context(self._held_interrupts())
            return self._end(self._until_done())

    @property
    def stay(self) -> bool:
        """Whether all ranks can take another call."""
        return not self._interrupted and all(rank.stays for rank in self._ranks)

    def _close(self, close: Callable[[], None]) -> None:
        if not self.stay:
            close()

    @contextlib.contextmanager
    def _held_interrupts(self) -> Iterator[None]:
        """Inside the block an interrupt of the main thread is noted and raises nothing, so that nothing is left half done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(*_: object) -> None:
            self._interrupted = True
            self._messages.put(None)

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _in_thread(self, function: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _join_threads(self) -> None:
        for thread in self._threads:
            thread.join(_END_SECONDS)  # all have ended with the ranks, but for one that cannot be killed

    def _accept(self) -> None:
        """In a thread: take a connection of each rank."""
        with contextlib.suppress(OSError):
            for _ in self._ranks:
                self._in_thread(self._receive, self._listener.accept())

    def _receive(self, connection: Connection) -> None:
        """In a thread: give a rank its job, and take what it sends until it has ended."""
        with connection, contextlib.suppress(EOFError, OSError):
            _, at, (number, pid) = connection.recv()
            rank = self._ranks[number]
            self._messages.put((rank, "hello", at, (pid, connection)))
            with contextlib.suppress(EOFError, OSError):
                connection.send(self._job)
                while True:
                    self._messages.put((rank, *connection.recv()))
            self._messages.put((rank, "gone", time.monotonic(), None))

    def _until_done(self) -> float:
        """Listen to the ranks until all are done, one has failed and the others had their chance, or the time is over.

        An interrupt ends it, too. Returns when the time began.
        """
        began = time.monotonic()
        end = began + _START_SECONDS
        entered = failed = False
        while not all(rank.done for rank in self._ranks) and (left := end - time.monotonic()) > 0 and not self._interrupted:
            self._listen(min(left, _POLL_SECONDS))
            if not entered and any(rank.entered for rank in self._ranks):
                entered, began = True, time.monotonic()
                end = began + self._limit
            if not failed and any(rank.done and rank.value is None for rank in self._ranks):
                failed = True
                end = min(end, time.monotonic() + _GRACE_SECONDS)
        return began

    def _listen(self, seconds: float) -> None:
        """Take what has come, and wait for the first message up to so many seconds; note which ranks have ended."""
        with contextlib.suppress(queue.Empty):
            message = self._messages.get(timeout=seconds)
            while True:
                if message is not None:
                    self._take(*message)
                message = self._messages.get_nowait()
        for rank in self._ranks:
            self._note_end(rank)

    def _take(self, rank: Rank, kind: str, at: float, value: Any) -> None:
        if kind == "hello":
            (rank.pid, rank.connection), rank.is_connected = value, True
        elif kind == "entered":
            rank.entered = True
        elif kind == "step":
            rank.steps.append(value)
        elif kind == "returned":
            rank.value, rank.at = value, at
        elif kind == "raised":
            rank.raised, rank.at = value, at
        elif kind == "stays":
            rank.stays, rank.ended, rank.at = True, True, rank.at or at
        elif kind == "gone":
            rank.is_connected, rank.at = False, rank.at or at

    def _note_end(self, rank: Rank) -> None:
        if not rank.ended:
            has_ended, status = self._starter.ended(rank.number, rank.pid)
            if has_ended:
                rank.at = rank.at or time.monotonic()
                rank.status = status if rank.status is None else rank.status
                rank.ended = not rank.is_connected or time.monotonic() > rank.at + _READ_SECONDS

    def _end(self, started: float) -> RunOutcome:
        """Let ranks that have returned end, kill the others; returns what came of the run."""
        seconds = time.monotonic() - started
        self._listen(0.0)
        late = [rank for rank in self._ranks if not rank.done]
        if all(rank.value is not None for rank in self._ranks):
            self._let_end()
            late = [rank for rank in self._ranks if not rank.ended]
        signalled = time.monotonic()
        self._take_stacks(late)  # what a rank sends after that signal is not its own doing: it is not read any more
        self._take_steps(signalled)
        for rank in self._ranks:
            rank.is_late = rank in late
            rank.printed = _end_of(self._starter.folder / f"workerlog.{rank.number}")
        launcher_log = self._starter.launcher_log()
        self._kill_all()
        return RunOutcome(tuple(self._ranks), launcher_log, started, seconds, self._interrupted)

    def _take_steps(self, before: float) -> None:
        """Take the steps that ranks named before that moment (time.monotonic) and that came only now."""
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._messages.get_nowait()
                if message is not None and message[1] == "step" and message[2] < before:
                    self._take(*message)

    def _let_end(self) -> None:
        """All have returned: let them end as a script does."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                if rank.connection is not None:
                    rank.connection.send(RETURNED)
        end = time.monotonic() + _END_SECONDS
        while not all(rank.ended for rank in self._ranks) and (left := end - time.monotonic()) > 0:
            self._listen(min(left, 0.02))

    def _take_stacks(self, late: list[Rank]) -> None:
        """Make ranks that are still at work write their stacks; one that was stopped is continued to do so."""
        late = [rank for rank in late if rank.pid is not None]
        before = {rank.number: len(self._written_by(rank)) for rank in late}
        for rank in late:
            with contextlib.suppress(psutil.Error):
                psutil.Process(rank.pid).send_signal(signal.SIGUSR1)
                psutil.Process(rank.pid).send_signal(signal.SIGCONT)
        end = time.monotonic() + _STACK_SECONDS
        seen: dict[int, str] = {}
        while late and time.monotonic() < end:
            time.sleep(0.03)
            now = {rank.number: self._written_by(rank) for rank in late}
            if now == seen and all(len(now[number]) > before[number] for number in now):
                break
            seen = now
        for rank in self._ranks:
            if rank.raised is None:
                rank.stack = stacks.read(self._written_by(rank)[before.get(rank.number, 0) :])

    def _kill_all(self) -> None:
        """Kill the ranks that do not stay, and all programs that they have started, wherever these have moved to."""
        staying = {self._starter.launcher, *(rank.pid for rank in self._ranks)} if self.stay else set()
        if not self.stay:
            self._starter.kill()
        for _ in range(_KILL_ROUNDS):
            found = [process for process in _marked(self._listener.address) if process.pid not in staying]
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            if not found:
                return
            psutil.wait_procs(found, _READ_SECONDS)

    def _written_by(self, rank: Rank) -> str:
        """What faulthandler has written in this rank so far."""
        return _end_of(stack_file(self._starter.folder, rank.number))


def _end_of(path: Path) -> str:
    """The last _OUTPUT_BYTES of a file as text; "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _marked(address: str) -> Iterator[psutil.Process]:
    """All programs that a rank of this run has started, even when the rank has ended; of those of this user."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid() and process.environ().get(MARK) == address:
                yield process
