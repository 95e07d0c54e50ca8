"""A task of the step: it says that it is ready, then starts a rank for each trial that its node is in, and reports its end.

Its standard input has the messages to all tasks, one a line; it ends when that does. Its standard output has its messages.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from xpulab.devices import SIMULATED
from xpulab.fleet.across import links
from xpulab.fleet.across.links import Group, Setup
from xpulab.fleet.across.node.member import Job
from xpulab.fleet.across.node.place import Place, card_of, place_of
from xpulab.fleet.across.node.running import FORKED, Running, new_folder
from xpulab.fleet.across.node.seats import seats_of

_INPUT = 0


def main() -> int:
    """Be a task; returns the exit code."""
    place = place_of(os.environ)
    task = Task(place, _sender(place.task))
    try:
        while task.listen():
            pass
    finally:
        task.close()
    return 0


class Task:
    """The state of a task: what all trials share, and its rank while one works."""

    def __init__(self, place: Place, send: Callable[[str, dict[str, Any]], None]) -> None:
        self._place, self._send = place, send
        self._setup: Setup | None = None
        self._running: Running | None = None
        self._trial = -1
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(_INPUT, selectors.EVENT_READ)
        send(links.HELLO, {"place": asdict(place)})

    def listen(self) -> bool:
        """Wait for a message, a note of the rank or its time limit; returns False at the end of the input."""
        seconds = max(0.0, self._running.end - time.monotonic()) if self._running else None
        ready = {key.fd for key, _ in self._selector.select(seconds)}
        running = self._running
        if running and running.descriptor in ready:
            if running.read():
                self._end(running, "")
        elif running and time.monotonic() >= running.end:
            self._end(running, links.LATE)
        return _INPUT not in ready or self._read_input()

    def close(self) -> None:
        """End the rank that is at work."""
        if self._running:
            self._running.close()

    def _read_input(self) -> bool:
        data = os.read(_INPUT, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(*links.loads(line.decode()))
        return bool(data)

    def _take(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == links.SETUP:
            self._setup = Setup(**fields)
            self._send(links.READY, self._get_ready(self._setup))
        elif kind == links.TRIAL:
            group = Group(**{**fields, "nodes": tuple(fields["nodes"])})
            if self._place.node in group.nodes:
                self._start(group)
        elif kind == links.STOP and self._running and fields["number"] == self._trial:
            self._end(self._running, links.STOPPED)

    def _get_ready(self, setup: Setup) -> dict[str, Any]:
        """Import what a rank needs, once; a problem is reported as text."""
        problem = ""
        try:
            if setup.device == SIMULATED:
                from xpulab import sim

                sim.environment(setup.cards)  # builds the plug-in
            if setup.device in FORKED:
                os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
                from xpulab.fleet.across.node import sections  # noqa: F401
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:600]
        return {"host": socket.gethostname(), "problem": problem}

    def _start(self, group: Group) -> None:
        assert self._setup is not None
        if self._running:  # a trial that it did not end
            self._end(self._running, links.STOPPED)
        setup, place = self._setup, self._place
        seats = seats_of(group, setup)
        taken = [port for port in seats.ports_on(place.node, place.local) if not _is_free(port)]
        if taken:
            self._send(links.PORT_TAKEN, {"trial": group.number, "node": place.node, "ports": taken})
            return
        seat = seats.seat(place.node, place.local, card_of(place.local, setup.device, os.environ))
        job = Job(seat, seats.meeting, setup.seed, setup.trial_seconds, group.rates, new_folder())
        self._trial = group.number
        self._running = Running(group.number, place.node, job, setup.start_seconds)
        self._selector.register(self._running.descriptor, selectors.EVENT_READ)

    def _end(self, running: Running, outcome: str) -> None:
        self._selector.unregister(running.descriptor)
        self._running = None
        report = running.report(outcome)
        running.close()
        self._send(links.REPORT, asdict(report))


def _is_free(port: int) -> bool:
    """Whether a process may listen on this port; it is not held, because the rank itself has to."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            return False
    return True


def _sender(task: int) -> Callable[[str, dict[str, Any]], None]:
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what imports print is no message
    sent = 0

    def send(kind: str, body: dict[str, Any]) -> None:
        nonlocal sent
        for line in links.lines_of(task, sent, kind, body):
            os.write(output, line.encode())
        sent += 1

    return send
