"""What an engine is: it knows nodes, starts a command on one of them, and says how far it got. And the one without a scheduler.

Over ssh no folder needs to be shared: bundles come back through standard output. A connection that ends closes the standard
input of the task, and the task stops its run.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.Task import task_self
from ClusterShell.Worker.Ssh import WorkerSsh

from xpulab.errors import InputError

CONNECTS_WITHIN = 15
"""Seconds; a node that does not answer by then is silent."""


@dataclass(frozen=True)
class Chosen:
    """nodes: those to use. left_out: nodes that cannot be used now, each with the reason."""

    nodes: tuple[str, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class Look:
    """What an engine knows of a node and of the command on it. Texts are empty when there is nothing to say.

    waits: why the command has no turn yet. gone: why the node cannot be expected to answer.
    over: whether the engine has finished with the command. state: of the node, in the engine's own words.
    """

    waits: str = ""
    gone: str = ""
    over: bool = True
    state: str = ""


class Engine:
    """name: as the command line has it. fanout: how many commands may run at a time.

    As it stands, nodes share no folder, and nothing but the connection to a command says anything about its node.
    """

    name: str
    fanout: int

    def choose(self, asked: str) -> Chosen:
        """The nodes of a set like node[1-3], or so many of them. Raises InputError for what this engine cannot use."""
        raise NotImplementedError

    def shared(self, folder: Path) -> Path | None:
        """The folder that nodes write bundles to; None when they send them through standard output."""
        return None

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """ClusterShell's worker for a command on one node, which calls the handler. limit: seconds it may take at most."""
        raise NotImplementedError

    def look(self, nodes: Iterable[str]) -> Mapping[str, Look]:
        """What is known of these nodes now."""
        return {node: Look() for node in nodes}

    def cancel(self, nodes: Iterable[str]) -> None:
        """End the commands on these nodes, unless they end with their connection."""


def node_names(text: str) -> tuple[str, ...]:
    """The nodes of a set as Slurm and ClusterShell write it. Raises InputError when it is none."""
    try:
        names = tuple(NodeSet(text))
    except NodeSetException as error:
        raise InputError(f"--nodes {text}: no set of nodes: {error}; write for example node[1-3,7] or a,b") from error
    if not names:
        raise InputError(f"--nodes {text}: names no node; write for example node[1-3,7] or a,b")
    return names


@dataclass
class Ssh(Engine):
    """options: further ones for ssh, for instance -F file -l user."""

    options: Sequence[str] = ()
    name: str = "ssh"
    fanout: int = 64

    def __post_init__(self) -> None:
        if shutil.which("ssh") is None:
            raise InputError("--engine ssh: ssh is not on PATH; install OpenSSH's client, or use --engine slurm")

    def choose(self, asked: str) -> Chosen:
        """As Engine. Only a connection shows whether a node is there, so none is left out."""
        if asked.isdecimal():
            raise InputError(f"--nodes {asked}: ssh does not know which nodes there are; name them, for example node[1-3]")
        return Chosen(node_names(asked), {})

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """As Engine."""
        task = task_self()
        task.set_info("ssh_options", shlex.join(self.options))
        task.set_info("connect_timeout", CONNECTS_WITHIN)
        return WorkerSsh(node, handler=handler, timeout=limit, command=shlex.join(command), stderr=True)
