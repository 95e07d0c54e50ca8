"""Watching the ranks of one run: what each sends, when each ends, the time limit, and that nothing is left running."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil

from xpulab.ranks import channel, leftovers
from xpulab.ranks.interrupts import Interrupts
from xpulab.ranks.observed import ObservedRank
from xpulab.ranks.outcome import RunOutcome

_START_SECONDS = 120.0
"""Until the first rank has entered the function: a launcher, Python and Paddle have to start."""
_GRACE_SECONDS = 2.0
"""After a rank has failed, the others get this long to fail, too, for a reason of their own."""
_STACK_SECONDS = 1.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.25
_OUTPUT_BYTES = 1 << 20
_INTERRUPT = object()


class Starter(Protocol):
    """Ranks that were started: forked.Forked or launched.Launched."""

    folder: Path

    def ended(self, rank: int, pid: int | None) -> tuple[bool, int | None]: ...
    def launcher_log(self) -> str: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Watch:
    """One run, from its start to its end. Use it once."""

    def __init__(self, n: int, time_limit: float, job: bytes) -> None:
        self._ranks = [ObservedRank(number) for number in range(n)]
        self._limit, self._job = time_limit, job
        self._unidentified: list[channel.Peer] = []

    def run(self, start: Callable[[str], Starter]) -> RunOutcome:
        """start(address) starts the ranks, which connect to that address. However this ends, no rank is left."""
        self._address = address = f"xpulab-ranks-{secrets.token_hex(16)}"
        with contextlib.ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            listener = stack.enter_context(contextlib.closing(channel.listen(address)))
            self._selector.register(listener, selectors.EVENT_READ)
            stack.callback(self._close_connections)
            interrupts = stack.enter_context(Interrupts())
            self._starter = start(address)
            stack.callback(self._starter.close)
            self._selector.register(interrupts.hold(), selectors.EVENT_READ, _INTERRUPT)
            return self._end(self._until_done(interrupts), interrupts)

    def _until_done(self, interrupts: Interrupts) -> float:
        """Listen to the ranks until all are done, one has failed and the others had their chance, or the time is over.

        An interrupt ends it, too. Returns when the time began.
        """
        began = time.monotonic()
        end = began + _START_SECONDS
        entered = failed = False
        while not all(rank.done for rank in self._ranks) and (left := end - time.monotonic()) > 0 and not interrupts.came:
            self._listen(min(left, _POLL_SECONDS))
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
            self._note_end(rank)

    def _accept(self, listener: Any) -> None:
        try:
            connected, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        peer = channel.Peer(connected)
        if peer.user != os.getuid():
            peer.close()
            return
        self._unidentified.append(peer)
        self._selector.register(peer, selectors.EVENT_READ, peer)

    def _read(self, peer: channel.Peer) -> bool:
        """Take what has come from a connection; returns whether there may be more."""
        messages, connected = peer.receive()
        for kind, at, body in messages:
            if kind == channel.HELLO:
                self._identify(peer, json.loads(body)["rank"])
            else:
                next(rank for rank in self._ranks if rank.peer is peer).take(kind, at, body)
        if not connected:
            self._selector.unregister(peer)
            if peer in self._unidentified:
                self._unidentified.remove(peer)
                peer.close()
            for rank in self._ranks:
                if rank.peer is peer:
                    rank.at = rank.at or time.monotonic()
        return connected and not peer.quiet

    def _identify(self, peer: channel.Peer, number: int) -> None:
        """From now on this connection is that of rank `number`, which is given its job."""
        rank = self._ranks[number]
        if rank.peer is not None:
            return
        self._unidentified.remove(peer)
        rank.peer = peer
        with contextlib.suppress(psutil.NoSuchProcess):
            rank.process = psutil.Process(peer.pid)
        peer.send(channel.JOB, self._job)

    def _note_end(self, rank: ObservedRank) -> None:
        if not rank.ended:
            ended, status = self._starter.ended(rank.number, rank.peer.pid if rank.peer else None)
            if ended:
                while rank.peer is not None and rank.peer in self._peers() and self._read(rank.peer):
                    pass  # until its last message is read
                rank.ended, rank.status = True, status
                rank.at = rank.at or time.monotonic()

    def _end(self, started: float, interrupts: Interrupts) -> RunOutcome:
        """Let ranks that have returned end, kill the others; returns what came of the run."""
        seconds = time.monotonic() - started
        self._read_all()
        late = [rank for rank in self._ranks if not rank.done]
        descendants = self._descendants()
        if all(rank.returned is not None for rank in self._ranks):
            self._let_end()
            late = [rank for rank in self._ranks if not rank.ended]
        self._take_stacks(late)  # what a rank sends after that signal is not its own doing: it is not read any more
        launcher_log = self._starter.launcher_log()
        self._kill_all(descendants)
        return RunOutcome(
            ranks=tuple(rank.outcome(rank in late, self._printed_by(rank)) for rank in self._ranks),
            launcher_log=launcher_log,
            started=started,
            seconds=seconds,
            interrupted=interrupts.came,
        )

    def _read_all(self) -> None:
        """Take whatever the ranks have sent by now."""
        for peer in list(self._peers()):
            while self._read(peer):
                pass

    def _let_end(self) -> None:
        """All have returned: let them end as a script does."""
        for rank in self._ranks:
            if rank.peer is not None:
                rank.peer.send(channel.END, b"returned")
        end = time.monotonic() + _END_SECONDS
        while not all(rank.ended for rank in self._ranks) and (left := end - time.monotonic()) > 0:
            self._listen(min(left, 0.02))

    def _take_stacks(self, late: list[ObservedRank]) -> None:
        """Make ranks that are still at work write their stacks; one that was stopped is continued to do so."""
        late = [rank for rank in late if rank.peer is not None]
        before = {rank.number: len(rank.read_stack_file()) for rank in late}
        for rank in late:
            if rank.process is not None:
                with contextlib.suppress(psutil.Error):
                    rank.process.send_signal(signal.SIGUSR1)
                    rank.process.send_signal(signal.SIGCONT)
        end = time.monotonic() + _STACK_SECONDS
        seen: dict[int, str] = {}
        while late and time.monotonic() < end:
            time.sleep(0.03)
            now = {rank.number: rank.read_stack_file() for rank in late}
            if now == seen and all(len(now[number]) > before[number] for number in now):
                break
            seen = now
        for rank in self._ranks:
            rank.stack_text = rank.read_stack_file()[before.get(rank.number, 0) :]

    def _kill_all(self, descendants: list[psutil.Process]) -> None:
        """Kill the ranks and all that they have started, wherever it has moved to."""
        alive = [rank.process for rank in self._ranks if rank.process is not None and not rank.ended]
        for process in alive:  # a suspended rank starts nothing more
            with contextlib.suppress(psutil.Error):
                process.suspend()
        descendants += self._descendants()
        if any(rank.ended and rank.returned is None and rank.raised is None for rank in self._ranks):
            descendants += leftovers.marked(self._address)
        leftovers.kill([*descendants, *alive])
        self._starter.kill()

    def _descendants(self) -> list[psutil.Process]:
        return leftovers.descendants([rank.process.pid for rank in self._ranks if rank.process and not rank.ended])

    def _printed_by(self, rank: ObservedRank) -> str:
        try:
            with (self._starter.folder / f"workerlog.{rank.number}").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _peers(self) -> Iterator[channel.Peer]:
        known = [rank.peer for rank in self._ranks if rank.peer is not None]
        return (peer for peer in [*self._unidentified, *known] if peer.fileno() in self._selector.get_map())

    def _close_connections(self) -> None:
        for peer in [*self._unidentified, *(rank.peer for rank in self._ranks if rank.peer is not None)]:
            peer.close()
