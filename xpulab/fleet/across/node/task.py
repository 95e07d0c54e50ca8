"""A task of the step: it says that it is ready, then starts a rank for each trial that its node is in, and reports its end.

Its standard input has the messages to all tasks, one a line; it ends when that does. Its standard output has its messages.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.fleet.across import links
from xpulab.fleet.across.links import Group, Setup
from xpulab.fleet.across.node.job import Job
from xpulab.fleet.across.node.rank import FORKED, Running, new_folder
from xpulab.ranks.environment import Seat

_INPUT = 0
_CARDS_OF = {
    "gpu": ("CUDA_VISIBLE_DEVICES",),
    "xpu": ("XPULINK_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""The variables that choose the visible cards, in the order in which Paddle's launcher reads them."""


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


@dataclass(frozen=True)
class Place:
    """Who a task is.

    task: its number in the step (SLURM_PROCID). local: its number on its node. node: its name.
    step_nodes: all nodes of the step, as a list that Slurm can expand. step: "JOB.STEP", as scancel takes it.
    """

    task: int
    local: int
    node: str
    step_nodes: str
    step: str


def place_of(variables: Mapping[str, str]) -> Place:
    """Who this task is, by Slurm's variables. Raises InputError when Slurm did not start it."""
    try:
        return Place(
            task=int(variables["SLURM_PROCID"]),
            local=int(variables["SLURM_LOCALID"]),
            node=variables["SLURMD_NODENAME"],
            step_nodes=variables.get("SLURM_STEP_NODELIST") or variables["SLURM_JOB_NODELIST"],
            step=f"{variables['SLURM_JOB_ID']}.{variables['SLURM_STEP_ID']}",
        )
    except (KeyError, ValueError) as error:
        raise InputError(f"this is no task of srun ({error!r}): start it with `xpulab fleet links`") from error


def card_of(local: int, device: str, variables: Mapping[str, str]) -> int:
    """The number of a task's card as Paddle counts: Slurm may let each task see all cards of the node, or its own only."""
    for name in _CARDS_OF.get(device, ()):
        if visible := [each for each in variables.get(name, "").split(",") if each.strip()]:
            return local if local < len(visible) else local % len(visible)
    return local


def seat_of(group: Group, setup: Setup, node: str, local: int, card: int) -> tuple[Seat, str]:
    """The place of a task's rank in a trial, and where its ranks meet, "address:port".

    Rank 0 listens on the trial's first two ports, for Paddle's store and for the meeting, and each rank on one more. Nodes with
    the same address, as in a test on one host, get different ports.
    """
    used: Counter[str] = Counter()
    endpoints = []
    for address in (setup.addresses[each] for each in group.nodes for _ in range(setup.cards)):
        endpoints.append(f"{address}:{group.port + 2 + used[address]}")
        used[address] += 1
    store, meeting = (f"{setup.addresses[group.nodes[0]]}:{group.port + number}" for number in (0, 1))
    rank = group.nodes.index(node) * setup.cards + local
    return Seat(rank, local, setup.cards, card, len(group.nodes), store, tuple(endpoints), setup.device), meeting


class Task:
    """The state of a task: what all trials share, and its rank while one works."""

    def __init__(self, place: Place, send: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._place, self._send = place, send
        self._setup: Setup | None = None
        self._running: Running | None = None
        self._trial = -1
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(_INPUT, selectors.EVENT_READ)
        send(links.HELLO, asdict(place))

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
            self._send(links.READY, {"node": self._place.node, "problem": _import(self._setup)})
        elif kind == links.TRIAL and self._place.node in fields["nodes"]:
            self._start(Group(**fields))
        elif kind == links.STOP and self._running and fields["number"] == self._trial:
            self._end(self._running, links.STOPPED)

    def _start(self, group: Group) -> None:
        assert self._setup is not None
        if self._running:  # a trial that it did not end
            self._end(self._running, links.STOPPED)
        setup, place = self._setup, self._place
        card = card_of(place.local, setup.device, os.environ)
        seat, meeting = seat_of(group, setup, place.node, place.local, card)
        mine = [seat.endpoints[seat.rank], *((seat.master, meeting) if seat.rank == 0 else ())]
        if taken := [port for port in (int(each.rpartition(":")[2]) for each in mine) if not _is_free(port)]:
            self._send(links.PORT_TAKEN, {"trial": group.number, "node": place.node, "ports": taken})
            return
        job = Job(seat, meeting, setup.seed, setup.trial_seconds, group.rates, new_folder())
        self._trial = group.number
        self._running = Running(group.number, place.node, job, setup.start_seconds)
        self._selector.register(self._running.descriptor, selectors.EVENT_READ)

    def _end(self, running: Running, outcome: str) -> None:
        self._selector.unregister(running.descriptor)
        self._running = None
        report = running.report(outcome)
        running.close()
        self._send(links.REPORT, asdict(report))


def _import(setup: Setup) -> str:
    """Import what a rank needs, once; returns what is wrong, "" when nothing is."""
    try:
        if setup.device == SIMULATED:
            from xpulab import sim

            sim.environment(setup.cards)  # builds the plug-in
        if setup.device in FORKED:
            os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
            from xpulab.fleet.across.node import sections  # noqa: F401
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:600]
    return ""


def _is_free(port: int) -> bool:
    """Whether a process may listen on this port; it is not held, because the rank itself has to."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            return False
    return True


def _sender(task: int) -> Callable[[str, Mapping[str, Any]], None]:
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what imports print is no message

    def send(kind: str, body: Mapping[str, Any]) -> None:
        for line in links.lines_of(task, kind, body):
            os.write(output, line.encode())

    return send
