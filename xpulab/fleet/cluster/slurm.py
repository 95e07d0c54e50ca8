"""The engine Slurm: a job of one node for each node, through srun, whose output comes back over the network.

A job for each node, and not one for all, since a node that does not answer would stop the start of all. Accounting is not
needed: squeue and sinfo show jobs and nodes.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet
from ClusterShell.Worker.Exec import ExecWorker

from xpulab.doctor.tool import run_tool
from xpulab.errors import InputError
from xpulab.fleet.cluster.engine import Chosen, Engine, Look, node_names

PROGRAMS = ("srun", "sinfo", "squeue", "scancel", "scontrol")
ALL = "all"
"""As --nodes: every node of the partition."""

_ANSWERS_WITHIN = 30.0
"""Seconds that a command of Slurm may take."""

_USABLE = ("idle", "mixed", "allocated", "completing", "allocated+", "idle+", "mixed+")
"""States of a node that can get a job, the ones that get it soonest first."""

_GONE = ("down", "fail", "error", "unknown", "powered_down", "powering_down", "power_down")


@dataclass(frozen=True)
class _Node:
    """state: as `sinfo %T` shows it, "idle" or "down*", where * is a node that does not respond. reason: or ""."""

    state: str
    reason: str

    @property
    def base(self) -> str:
        return self.state.rstrip("*~#!%$@^-")

    @property
    def is_gone(self) -> bool:
        return "*" in self.state or self.base in _GONE

    def __str__(self) -> str:
        state = f"{self.base}, does not respond" if "*" in self.state else self.state
        return f"Slurm: {state}{f', {self.reason}' if self.reason else ''}"


@dataclass
class Slurm(Engine):
    """partition: None takes Slurm's default. options: further ones for srun, for instance --account=lab --gres=xpu:8."""

    partition: str | None = None
    options: Sequence[str] = ()
    name: str = "slurm"
    fanout: int = 4096
    _prefix: str = field(default_factory=lambda: f"xpulab-{os.getpid()}-{secrets.token_hex(3)}.")

    def __post_init__(self) -> None:
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise InputError(f"--engine slurm: {', '.join(missing)} not on PATH; load Slurm's module, or use --engine ssh")

    def choose(self, asked: str) -> Chosen:
        """As Engine. A number takes nodes that are idle first; nodes that are drained or down are left out."""
        known = self._nodes(())
        if asked.isdecimal():
            return self._so_many(int(asked), known)
        names = tuple(known) if asked == ALL else node_names(asked)
        if unknown := [name for name in names if name not in known]:
            there = NodeSet.fromlist(known)
            raise InputError(f"--nodes {asked}: Slurm{self._where} has no node {', '.join(unknown)}; it has {there}")
        usable = tuple(name for name in names if known[name].base in _USABLE and not known[name].is_gone)
        if not usable:
            states = "; ".join(f"{name} {known[name].state}" for name in names)
            raise InputError(f"--nodes {asked}: none of them can be used now: {states}; `sinfo -R` says why")
        return Chosen(usable, {name: str(known[name]) for name in names if name not in usable})

    def _so_many(self, count: int, known: Mapping[str, _Node]) -> Chosen:
        usable = [name for name, node in known.items() if node.base in _USABLE and not node.is_gone]
        usable.sort(key=lambda name: _USABLE.index(known[name].base))
        if not 0 < count <= len(usable):
            raise InputError(
                f"--nodes {count}: {len(usable)} of the {len(known)} nodes{self._where} can be used; `sinfo -R` says why"
            )
        left_out = {name: str(node) for name, node in known.items() if name not in usable}
        return Chosen(tuple(sorted(usable[:count], key=list(known).index)), left_out)

    def shared(self, folder: Path) -> Path | None:
        """As Engine: a cluster with Slurm shares folders."""
        return folder

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """As Engine. The job has the node for itself: what runs beside it would change its rates."""
        minutes = int(limit // 60) + 1
        srun = [
            "srun",
            f"--job-name={self._prefix}{node}",
            f"--nodelist={node}",
            "--nodes=1",
            "--ntasks=1",
            f"--time={minutes}",
        ]
        srun += [
            "--exclusive",
            "--mem=0",
            "--cpu-bind=none",
            "--input=none",
            "--unbuffered",
            *self._in_partition,
            *self.options,
        ]
        line = f"exec {shlex.join([*_without_allocation(), *srun, *command])}"  # ClusterShell kills only one process
        line = line.replace("%", "%%")  # it replaces %h by the node
        return ExecWorker(node, handler=handler, command=line, stderr=True)

    def look(self, nodes: Iterable[str]) -> Mapping[str, Look]:
        """As Engine. When Slurm itself does not answer, nothing is known of any node, and none is silent because of that."""
        names = tuple(nodes)
        try:
            jobs, known = dict(self._jobs()), self._nodes(names)
        except InputError:
            return {name: Look(waits="Slurm does not answer", over=False) for name in names}
        return {name: _look(known.get(name), jobs.get(name)) for name in names}

    def cancel(self, nodes: Iterable[str]) -> None:
        """As Engine."""
        if names := [f"{self._prefix}{node}" for node in nodes]:
            for name in names:
                run_tool(("scancel", "--name", name, "--user", str(os.getuid())), _ANSWERS_WITHIN)

    @property
    def _where(self) -> str:
        return f" in partition {self.partition}" if self.partition else ""

    @property
    def _in_partition(self) -> list[str]:
        return [f"--partition={self.partition}"] if self.partition else []

    def _nodes(self, names: Sequence[str]) -> dict[str, _Node]:
        """State and reason of these nodes, or of all nodes of the partition. Raises InputError when Slurm does not answer."""
        chosen = ["--nodes", ",".join(names)] if names else self._in_partition
        lines = _lines(("sinfo", "--noheader", "--Node", *chosen, "--format=%N|%T|%E"))
        found = {}
        for name, state, reason in (line.split("|", 2) for line in lines if line.count("|") >= 2):
            found[name] = _Node(state.lower(), "" if reason == "none" else reason)
        if not found:
            there = ", ".join(sorted({line.strip() for line in _lines(("sinfo", "--noheader", "--format=%R"))}))
            raise InputError(f"--partition {self.partition}: Slurm has none of this name; it has {there}")
        return found

    def _jobs(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Node, state and reason of each job of this run that squeue still shows. Raises InputError as _nodes."""
        for line in _lines(("squeue", "--noheader", "--user", str(os.getuid()), "--format=%j|%T|%r")):
            job, state, reason = ([*line.split("|", 2), "", ""])[:3]
            if job.startswith(self._prefix):
                yield job.removeprefix(self._prefix), (state, reason)


def _without_allocation() -> list[str]:
    """What starts srun as outside of a job, in which it would start a step: the fleet run may be in one itself."""
    inherited = sorted(name for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF")
    return ["env", *(f"--unset={name}" for name in inherited)] if "SLURM_JOB_ID" in os.environ else []


def _look(node: _Node | None, job: tuple[str, str] | None) -> Look:
    waits = f"{job[0]} ({job[1]})" if job and job[0] in ("PENDING", "CONFIGURING") else ""
    state = str(node) if node else "Slurm does not show it"
    return Look(waits=waits, gone=state if node and node.is_gone else "", over=job is None, state=state)


def _lines(command: tuple[str, ...]) -> list[str]:
    ran = run_tool(command, _ANSWERS_WITHIN)
    if ran.outcome != "ok":
        raise InputError(f"--engine slurm: {ran.detail}; `scontrol ping` says whether Slurm answers")
    return ran.output.splitlines()
