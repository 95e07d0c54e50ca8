"""What starts commands on nodes: Slurm, a job of one node for each node through srun; and ssh, for sites without a scheduler.

With Slurm it is a job for each node, and not one for all, since a node that does not answer would stop the start of all.
Accounting is not needed: squeue and sinfo show jobs and nodes. Either way the output of a command comes back over the network,
and the task on the node stops its run when its standard input is closed.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.Task import task_self
from ClusterShell.Worker.Exec import ExecWorker
from ClusterShell.Worker.Ssh import WorkerSsh

from xpulab.child import OUTPUT_LIMIT
from xpulab.doctor.tool import run_tool
from xpulab.errors import InputError

PROGRAMS = ("srun", "sinfo", "squeue", "scancel")
ALL = "all"
"""As --nodes: every node of the partition."""

MOST_BYTES = 64 * 2**20
"""What a node may send in all: a bundle of all notebooks at level standard has 5 MiB or so. A line has at most OUTPUT_LIMIT."""

_BYTES_OF_A_LINE = 2000
"""As which each line counts besides: it takes time."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
"""Of a node, as a whole: files have it, and commands."""
_CONNECTS_WITHIN = 15
"""Seconds that ssh has to reach a node."""
_ANSWERS_WITHIN = 30.0
"""Seconds that a command of Slurm may take."""
_USABLE = ("idle", "mixed", "allocated", "completing")
"""States of a node that can get a job, as sinfo shows them; it adds "+" to some, and "*" where a node does not respond."""


@dataclass(frozen=True)
class Look:
    """What an engine knows of a node. waits: why its command has no turn yet; state: in the engine's words. Both may be ""."""

    waits: str = ""
    state: str = ""


def node_names(asked: str) -> tuple[str, ...]:
    """The nodes of a set as Slurm and ClusterShell write it. Raises InputError when it is none."""
    try:
        names = tuple(NodeSet(asked))
    except NodeSetException as error:
        raise InputError(f"--nodes {asked}: no set of nodes: {error}; write for example node[1-3,7] or a,b") from error
    if not names or asked.isdecimal():
        raise InputError(f"--nodes {asked}: names no node; write for example node[1-3,7] or a,b")
    if odd := [name for name in names if not _NAME.fullmatch(name)]:
        raise InputError(f"--nodes {asked}: {odd[0]!r} is no name of a node, which has letters, digits, -, _ and dots")
    return names


def _limited(worker: Any) -> Any:
    """A class of ClusterShell's workers that takes no more than MOST_BYTES of a node, and tells its handler of more.

    The rest is read, since the node would wait, and not kept.
    """

    class Client(worker.SHELL_CLASS):
        _taken = 0

        def _read(self, sname: str, size: int = 1 << 16) -> bytes:
            data: bytes = super()._read(sname, size)
            self._taken += len(data) + _BYTES_OF_A_LINE * data.count(b"\n")
            if self._taken <= MOST_BYTES and len(self.streams[sname].rbuf) <= OUTPUT_LIMIT:
                return data
            self.worker.eh.sent_too_much = True
            return b"\n"

    return type(worker.__name__, (worker,), {"SHELL_CLASS": Client})


_LocalWorker, _SshWorker = _limited(ExecWorker), _limited(WorkerSsh)


class Ssh:
    """An engine: what starts a command on a node. name: as the command line has it. fanout: how many may run at a time."""

    name, fanout = "ssh", 64

    def __init__(self, options: Sequence[str] = ()) -> None:
        """options: further ones for ssh, for instance -F file -l user."""
        self.options = options
        if shutil.which("ssh") is None:
            raise InputError("--engine ssh: ssh is not on PATH; install OpenSSH's client, or use --engine slurm")

    def choose(self, asked: str) -> Mapping[str, str]:
        """By node of a set like node[1-3] why it cannot be used now, "" for one that can. Raises InputError for no set.

        Only a connection shows whether a node is there.
        """
        return dict.fromkeys(node_names(asked), "")

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """ClusterShell's worker for a command on one node, which calls the handler. limit: seconds it may take at most."""
        task = task_self()
        task.set_info("ssh_options", shlex.join(self.options))
        task.set_info("connect_timeout", _CONNECTS_WITHIN)
        return _SshWorker(node, handler=handler, timeout=limit, command=shlex.join(command), stderr=True)

    def look(self, nodes: Iterable[str]) -> Mapping[str, Look]:
        """What is known of these nodes now."""
        return {node: Look() for node in nodes}

    def cancel(self, nodes: Iterable[str]) -> None:
        """End the commands on these nodes: those of ssh end with their connection."""


class Slurm:
    """An engine as Ssh, with a job for each node."""

    name, fanout = "slurm", 4096

    def __init__(self, partition: str | None = None, options: Sequence[str] = ()) -> None:
        """partition: None takes Slurm's default. options: further ones for srun, for instance --account=lab --gres=xpu:8."""
        self.partition, self.options = partition, options
        self._prefix = f"xpulab-{os.getpid()}-{secrets.token_hex(3)}."
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise InputError(f"--engine slurm: {', '.join(missing)} not on PATH; load Slurm's module, or use --engine ssh")

    def choose(self, asked: str) -> Mapping[str, str]:
        """As Ssh; ALL takes every node. Those that are drained or down cannot be used."""
        known = self._states(self._in_partition)
        if not known:
            there = ", ".join(sorted({line.strip() for line in _lines(("sinfo", "--noheader", "--format=%R"))}))
            raise InputError(f"--partition {self.partition}: Slurm has none of this name; it has {there}")
        names = node_names(",".join(known) if asked == ALL else asked)
        if unknown := [name for name in names if name not in known]:
            where = f" in partition {self.partition}" if self.partition else ""
            raise InputError(
                f"--nodes {asked}: Slurm has no node {', '.join(unknown)}{where}; it has {NodeSet.fromlist(known)}"
            )
        usable = {name for name in names if known[name].split(",")[0].rstrip("+") in _USABLE}
        if not usable:
            states = "; ".join(f"{name} {known[name]}" for name in names)
            raise InputError(f"--nodes {asked}: none of them can be used now: {states}; `sinfo -R` says why")
        return {name: "" if name in usable else f"Slurm: {known[name]}" for name in names}

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """As Ssh. The job has the node for itself: what runs beside it would change its rates."""
        srun = ["srun", f"--job-name={self._prefix}{node}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--exclusive"]
        srun += ["--mem=0", "--cpu-bind=none", "--unbuffered", f"--time={int(limit // 60) + 1}"]
        words = [*_without_allocation(), *srun, *self._in_partition, *self.options, *command]
        line = f"exec {shlex.join(words)}"  # ClusterShell kills only one process
        return _LocalWorker(node, handler=handler, command=line.replace("%", "%%"), stderr=True)  # it replaces %h by the node

    def look(self, nodes: Iterable[str]) -> Mapping[str, Look]:
        """As Ssh. When Slurm itself does not answer, nothing is known of any node, and none is silent because of that."""
        names = tuple(nodes)
        try:
            states, waits = self._states(["--nodes", ",".join(names)]), self._waits()
        except InputError:
            return {name: Look(waits="Slurm does not answer") for name in names}
        return {name: Look(waits.get(name, ""), f"Slurm: {states.get(name, 'not shown')}") for name in names}

    def cancel(self, nodes: Iterable[str]) -> None:
        """As Ssh."""
        for node in nodes:
            run_tool(("scancel", "--name", f"{self._prefix}{node}", "--user", str(os.getuid())), _ANSWERS_WITHIN)

    @property
    def _in_partition(self) -> list[str]:
        return [f"--partition={self.partition}"] if self.partition else []

    def _states(self, chosen: Sequence[str]) -> dict[str, str]:
        """By node its state with the reason, as "down, does not respond, no power". Raises InputError without an answer."""
        states = {}
        for line in _lines(("sinfo", "--noheader", "--Node", *chosen, "--format=%N|%T|%E")):
            name, state, reason = line.split("|", 2)
            words = [state.lower().rstrip("*"), "does not respond" if "*" in state else "", "" if reason == "none" else reason]
            states[name] = ", ".join(filter(None, words))
        return states

    def _waits(self) -> dict[str, str]:
        """By node why its job has no turn yet. Raises InputError as _states."""
        lines = _lines(("squeue", "--noheader", "--user", str(os.getuid()), "--states=PD,CF", "--format=%j|%T|%r"))
        jobs = (line.split("|", 2) for line in lines if line.startswith(self._prefix))
        return {name.removeprefix(self._prefix): f"{state} ({reason})" for name, state, reason in jobs}


Engine = Ssh | Slurm


def engine_named(name: str, partition: str | None, options: Sequence[str]) -> Engine:
    """The engine; options: further ones of srun or ssh. Raises InputError for another name, and for what it does not have."""
    if name == "slurm":
        return Slurm(partition, options)
    if name != "ssh":
        raise InputError(f"--engine {name}: no such engine; choose slurm or ssh")
    if partition is not None:
        raise InputError(f"--partition {partition}: only Slurm has partitions; remove it, or use --engine slurm")
    return Ssh(options)


def _without_allocation() -> list[str]:
    """What starts srun as outside of a job, in which it would start a step: the fleet run may be in one itself."""
    inherited = sorted(name for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF")
    return ["env", *(f"--unset={name}" for name in inherited)] if "SLURM_JOB_ID" in os.environ else []


def _lines(command: tuple[str, ...]) -> list[str]:
    ran = run_tool(command, _ANSWERS_WITHIN)
    if ran.outcome != "ok":
        raise InputError(f"--engine slurm: {ran.detail}; `scontrol ping` says whether Slurm answers")
    return ran.output.splitlines()
