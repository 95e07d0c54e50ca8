"""Watching the ranks of one run: what each tells, when each ends, the time limit, and that nothing is left running."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from xpulab.ranks import channel, leftovers, root_cause, stacks
from xpulab.ranks.inside import Raised

_START_SECONDS = 120.0
"""Until the first rank has entered the function: a launcher, Python and Paddle have to start."""
_GRACE_SECONDS = 2.0
"""After a rank has failed, the others get this long to fail, too, for a reason of their own."""
_STACK_SECONDS = 1.0
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.25
_OUTPUT_BYTES = 1 << 20
_INTERRUPT = object()


class Starter(Protocol):
    """Ranks that were started: forked.Forked or launched.Launched."""

    folder: Path

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]: ...
    def words(self) -> str: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class _Rank:
    """One rank, as far as it is known by now. Times are time.monotonic()."""

    number: int
    peer: channel.Peer | None = None
    process: psutil.Process | None = None
    entered: bool = False
    steps: list[str] = field(default_factory=list)
    returned: bytes | None = None
    raised: Raised | None = None
    at: float = 0.0
    gone: bool = False
    status: int | None = None
    written: str = ""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to come from it."""
        return self.returned is not None or self.raised is not None or self.gone


@dataclass(frozen=True)
class Outcome:
    """What came of a run. values: the pickled return values, None unless all ranks have returned. printed: by rank.

    ends and texts: by rank, what root_cause.py needs and what a reader sees (traceback or stack); steps: the last of each.
    words: what the launcher had to say. started: the time.monotonic() from which the limit counts. interrupted: by Ctrl-C.
    """

    values: list[bytes] | None
    printed: list[str]
    ends: list[root_cause.End]
    texts: list[str]
    statuses: list[int | None]
    steps: list[str]
    words: str
    started: float
    seconds: float
    interrupted: bool


class Watch:
    """One run, from its start to its end. Use it once."""

    def __init__(self, n: int, time_limit: float, job: bytes) -> None:
        self._ranks = [_Rank(number) for number in range(n)]
        self._limit, self._job = time_limit, job
        self._strangers: list[channel.Peer] = []

    def run(self, start: Callable[[str], Starter]) -> Outcome:
        """start(address) starts the ranks, which connect to that address. However this ends, no rank is left."""
        self._address = address = f"xpulab-ranks-{secrets.token_hex(16)}"
        with contextlib.ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            listener = stack.enter_context(contextlib.closing(channel.listen(address)))
            self._selector.register(listener, selectors.EVENT_READ)
            stack.callback(self._hang_up)
            interrupts = stack.enter_context(_Interrupts())
            self._starter = start(address)
            stack.callback(self._starter.close)
            self._selector.register(interrupts.hold(), selectors.EVENT_READ, _INTERRUPT)
            return self._end(self._until_done(interrupts), interrupts)

    def _until_done(self, interrupts: _Interrupts) -> float:
        """Listen to the ranks until all are done, one has failed and the others had their chance, or the time is over.

        An interrupt ends it, too. Returns when the time began.
        """
        began = time.monotonic()
        end = began + _START_SECONDS
        entered = failed = False
        while not all(rank.done for rank in self._ranks) and (left := end - time.monotonic()) > 0 and not interrupts.came:
            self._listen(min(left, _LOOK_SECONDS))
            if not entered and any(rank.entered for rank in self._ranks):
                entered, began = True, time.monotonic()
                end = began + self._limit
            if not failed and any(rank.done and rank.returned is None for rank in self._ranks):
                failed = True
                end = min(end, time.monotonic() + _GRACE_SECONDS)
        return began

    def _listen(self, seconds: float) -> None:
        for key, events in self._selector.select(seconds):
            if key.data is None:
                self._accept(key.fileobj)
            elif key.data is _INTERRUPT:
                self._selector.unregister(key.fileobj)  # it has woken us
            elif events & selectors.EVENT_WRITE:
                key.data.pump()
            else:
                self._read(key.data)
        for peer in self._peers():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.sending else 0)
            if self._selector.get_key(peer).events != wanted:
                self._selector.modify(peer, wanted, peer)
        for rank in self._ranks:
            self._look_at(rank)

    def _accept(self, listener: Any) -> None:
        try:
            connected, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        peer = channel.Peer(connected)
        if peer.user != os.getuid():
            peer.close()
            return
        self._strangers.append(peer)
        self._selector.register(peer, selectors.EVENT_READ, peer)

    def _read(self, peer: channel.Peer) -> bool:
        """Take what has come from a rank; returns whether there may be more."""
        messages, standing = peer.receive()
        for kind, at, body in messages:
            if kind == channel.HELLO:
                self._know(peer, json.loads(body)["rank"])
            else:
                _take(next(rank for rank in self._ranks if rank.peer is peer), kind, at, body)
        if not standing:
            self._selector.unregister(peer)
            if peer in self._strangers:
                self._strangers.remove(peer)
                peer.close()
            for rank in self._ranks:
                if rank.peer is peer:
                    rank.at = rank.at or time.monotonic()
        return standing and not peer.quiet

    def _know(self, peer: channel.Peer, number: int) -> None:
        rank = self._ranks[number]
        if rank.peer is not None:
            return
        self._strangers.remove(peer)
        rank.peer = peer
        with contextlib.suppress(psutil.NoSuchProcess):
            rank.process = psutil.Process(peer.pid)
        peer.send(channel.JOB, self._job)

    def _look_at(self, rank: _Rank) -> None:
        if not rank.gone:
            ended, status = self._starter.ended(rank.number, rank.peer.pid if rank.peer else None)
            if ended:
                while rank.peer is not None and rank.peer in self._peers() and self._read(rank.peer):
                    pass  # until its last words are read
                rank.gone, rank.status = True, status
                rank.at = rank.at or time.monotonic()

    def _end(self, started: float, interrupts: _Interrupts) -> Outcome:
        """Let the ranks go, or end them; what came of the run."""
        seconds = time.monotonic() - started
        self._read_all()
        good = all(rank.returned is not None for rank in self._ranks)
        late = [rank for rank in self._ranks if not rank.done]
        descendants = self._descendants()
        if good:
            self._let_go()
            late = [rank for rank in self._ranks if not rank.gone]
        self._take_stacks(late)  # what a rank says after that signal is not its own doing: it is not read any more
        words = self._starter.words()
        self._end_all(descendants)
        ends = [_end_of_rank(rank, rank in late) for rank in self._ranks]
        good = all(end.outcome == root_cause.RETURNED for end in ends)
        return Outcome(
            values=[rank.returned for rank in self._ranks if rank.returned is not None] if good else None,
            printed=[_tail(self._starter.folder / f"workerlog.{rank.number}") for rank in self._ranks],
            ends=ends,
            texts=[_text(rank) for rank in self._ranks],
            statuses=[rank.status for rank in self._ranks],
            steps=[rank.steps[-1] if rank.steps else "" for rank in self._ranks],
            words=words,
            started=started,
            seconds=seconds,
            interrupted=interrupts.came,
        )

    def _read_all(self) -> None:
        """Take whatever the ranks have said by now."""
        for peer in list(self._peers()):
            while self._read(peer):
                pass

    def _let_go(self) -> None:
        """All have returned: let them end as a script does."""
        for rank in self._ranks:
            if rank.peer is not None:
                rank.peer.send(channel.END, b"returned")
        end = time.monotonic() + _END_SECONDS
        while not all(rank.gone for rank in self._ranks) and (left := end - time.monotonic()) > 0:
            self._listen(min(left, 0.02))

    def _take_stacks(self, late: list[_Rank]) -> None:
        """Make ranks that are still at work write their stacks; one that was stopped is continued to do so."""
        late = [rank for rank in late if rank.peer is not None]
        before = {rank.number: len(_written(rank)) for rank in late}
        for rank in late:
            if rank.process is not None:
                with contextlib.suppress(psutil.Error):
                    rank.process.send_signal(signal.SIGUSR1)
                    rank.process.send_signal(signal.SIGCONT)
        end = time.monotonic() + _STACK_SECONDS
        seen: dict[int, str] = {}
        while late and time.monotonic() < end:
            time.sleep(0.03)
            now = {rank.number: _written(rank) for rank in late}
            if now == seen and all(len(now[number]) > before[number] for number in now):
                break
            seen = now
        for rank in self._ranks:
            rank.written = _written(rank)[before.get(rank.number, 0) :]

    def _end_all(self, descendants: list[psutil.Process]) -> None:
        """Kill the ranks and all that they have started, wherever it has moved to."""
        alive = [rank.process for rank in self._ranks if rank.process is not None and not rank.gone]
        for process in alive:  # a rank that stands still starts nothing more
            with contextlib.suppress(psutil.Error):
                process.suspend()
        descendants += self._descendants()
        if any(rank.gone and rank.returned is None and rank.raised is None for rank in self._ranks):
            descendants += leftovers.marked(self._address)
        leftovers.kill([*descendants, *alive])
        self._starter.kill()

    def _descendants(self) -> list[psutil.Process]:
        return leftovers.descendants([rank.process.pid for rank in self._ranks if rank.process and not rank.gone])

    def _peers(self) -> Iterator[channel.Peer]:
        known = [rank.peer for rank in self._ranks if rank.peer is not None]
        return (peer for peer in [*self._strangers, *known] if peer.fileno() in self._selector.get_map())

    def _hang_up(self) -> None:
        for peer in [*self._strangers, *(rank.peer for rank in self._ranks if rank.peer is not None)]:
            peer.close()


def _take(rank: _Rank, kind: bytes, at: float, body: bytes) -> None:
    if kind == channel.ENTERED:
        rank.entered = True
    elif kind == channel.STEP:
        rank.steps.append(body.decode(errors="replace"))
    elif kind == channel.RETURNED:
        rank.returned, rank.at = body, at
    elif kind == channel.RAISED:
        rank.raised, rank.at = pickle.loads(body), at


def _end_of_rank(rank: _Rank, late: bool) -> root_cause.End:
    stack = stacks.read(rank.written)
    returned = rank.returned is not None
    known: Mapping[str, Any] = {"rank": rank.number, "at": rank.at, "steps": len(rank.steps), "had_returned": returned}
    if rank.raised is not None:
        raised = rank.raised
        return root_cause.End(
            outcome=root_cause.RAISED, kind=raised.kind, message=raised.message, frames=raised.frames, **known
        )
    if returned and not late and rank.status in (0, None):
        return root_cause.End(outcome=root_cause.RETURNED, **known)
    if late:
        return root_cause.End(outcome=root_cause.LATE if rank.peer else root_cause.ABSENT, stack=stack, **known)
    return root_cause.End(outcome=root_cause.KILLED if rank.peer else root_cause.ABSENT, stack=stack, **known)


def _text(rank: _Rank) -> str:
    if rank.raised is not None:
        return stacks.with_cells(rank.raised.trace)
    return stacks.read(rank.written).text


def _written(rank: _Rank) -> str:
    """What faulthandler has written for this rank so far."""
    if rank.peer is None or rank.peer.stack is None:
        return ""
    return os.pread(rank.peer.stack, 1 << 20, 0).decode(errors="replace")


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


class _Interrupts(contextlib.AbstractContextManager):
    """From hold() to the end of the block an interrupt raises nothing, and is noted instead.

    So it cannot come between what a rank has said and the note of it, nor while ranks are being ended.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None
        self._woken, self._waker = socket.socketpair()

    def hold(self) -> socket.socket:
        """Returns a socket that an interrupt makes readable. Only the main thread is interrupted; others hold nothing."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self._woken

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self._woken.close()
        self._waker.close()

    def _note(self, *_: object) -> None:
        if not self.came:
            self.came = True
            self._waker.send(b"!")
