"""The six faults of a node in a fleet, and what a fleet run must say of it: for the tests, and for tools/benchmarks.

Each is injected into one node of the cluster of slurm_cluster.py while a fleet run uses all three.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMOKE = ("09_collectives", "--level", "smoke")
SLOW = ("09_collectives", "--level", "quick", "--check", "hang.slow")
"""The check that measures the ranks of a node against each other is of level quick."""

Inject = Callable[[Any, str], Any]
"""A context in which the node of the cluster has the fault."""


@dataclass(frozen=True)
class FleetFault:
    """inject: a context. run: arguments of the fleet run. statuses: the node's status is one. named: is in its sentence."""

    inject: Inject
    run: tuple[str, ...]
    statuses: tuple[str, ...]
    named: str
    is_drained: bool


@contextmanager
def _variables(cluster: Any, node: str, **variables: str) -> Iterator[None]:
    cluster.give(node, **variables)
    yield


def _card(faults: str) -> Inject:
    return lambda cluster, node: _variables(cluster, node, XPULAB_SIM_FAULTS=faults)


@contextmanager
def _dead_slurmd(cluster: Any, node: str) -> Iterator[None]:
    cluster.stop_slurmd(node)
    yield


@contextmanager
def _slurmd_dies_during_the_run(cluster: Any, node: str) -> Iterator[None]:
    """It dies as soon as the node runs a job."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.2):
            if cluster.run("squeue", "--noheader", "--nodelist", node, "--states=RUNNING").stdout.strip():
                cluster.stop_slurmd(node)
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a file system."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, timeout=30)
    if mounted.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True, timeout=30)
    return mounted.returncode == 0


@contextmanager
def _full_disk(cluster: Any, node: str) -> Iterator[None]:
    """The scratch folder of the node is a file system of 8 MiB. Mounting needs root."""
    with tempfile.TemporaryDirectory(prefix="xpulab-scratch-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True, timeout=30, capture_output=True)
        try:
            cluster.give(node, XPULAB_SCRATCH=folder)
            yield
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True, timeout=30)


@contextmanager
def _frozen_slurmd(cluster: Any, node: str) -> Iterator[None]:
    cluster.freeze_slurmd(node)
    yield


FAULTS = {
    "wrong sum": FleetFault(
        _card("flip collective kind=all_reduce rank=1 bit=20 from=1"), SMOKE, ("red",), "collectives.smoke-values", True
    ),
    "slow card": FleetFault(_card("delay task rank=1 seconds=0.003"), SLOW, ("red", "outlier"), "hang.slow", True),
    "hang": FleetFault(_card("hang collective rank=1 n=1"), SMOKE, ("red",), "had not ended after", True),
    "dead slurmd": FleetFault(_dead_slurmd, SMOKE, ("silent",), "never answered", False),
    "slurmd dies": FleetFault(_slurmd_dies_during_the_run, SMOKE, ("silent",), "answer", False),
    "full disk": FleetFault(_full_disk, SMOKE, ("red",), "is full", True),
    "never answers": FleetFault(_frozen_slurmd, SMOKE, ("silent",), "never answered", False),
}
"""A dead slurmd has two rows: it is dead before the run, or it dies during it."""


def fleet_run(cluster: Any, folder: Path, *arguments: str, **variables: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, output and fleet.json of a fleet run of all three nodes with two simulated cards each."""
    command = [sys.executable, "-m", "xpulab", "fleet", "run", *arguments, "--nodes", "node[1-3]", "--device", "sim"]
    command += ["--cards", "2", "--timeout", "4", "--wait", "1", "--out", str(folder)]
    done = cluster.run(*command, timeout=200, **variables)
    record = folder / "fleet.json"
    return done.returncode, done.stdout + done.stderr, json.loads(record.read_text()) if record.exists() else {}


def wrong(fault: FleetFault, node: str, code: int, record: dict[str, Any]) -> list[str]:
    """What is wrong with the answer of a fleet run in which the node had the fault; empty when it is right."""
    nodes = {each["answer"]["node"]: each for each in record["nodes"]}
    faulty = nodes.pop(node)
    return [
        *([] if code == 1 else [f"exit code {code}"]),
        *([] if faulty["status"] in fault.statuses else [f"{node} is {faulty['status']}: {faulty['sentence']}"]),
        *([] if fault.named in faulty["sentence"] else [f"{fault.named!r} is not in {faulty['sentence']!r}"]),
        *([] if (faulty["drain"] is not None) is fault.is_drained else [f"drain reason {faulty['drain']!r}"]),
        *(f"{name} is {each['status']}: {each['sentence']}" for name, each in nodes.items() if each["status"] != "green"),
    ]
