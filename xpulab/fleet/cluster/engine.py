"""What an engine is: it knows nodes, starts a command on one of them, and says how far it got."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ClusterShell.NodeSet import NodeSet, NodeSetException

from xpulab.errors import InputError


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


class Engine(Protocol):
    """name: as the command line has it. fanout: how many commands may run at a time."""

    name: str
    fanout: int

    def choose(self, asked: str) -> Chosen:
        """The nodes of a set like node[1-3], or so many of them. Raises InputError for what this engine cannot use."""

    def shared(self, folder: Path) -> Path | None:
        """The folder that nodes write bundles to; None when they send them through standard output."""

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """ClusterShell's worker for a command on one node, which calls the handler. limit: seconds it may take at most."""

    def look(self, nodes: Iterable[str]) -> Mapping[str, Look]:
        """What is known of these nodes now."""

    def cancel(self, nodes: Iterable[str]) -> None:
        """End the commands on these nodes."""


def node_names(text: str) -> tuple[str, ...]:
    """The nodes of a set as Slurm and ClusterShell write it. Raises InputError when it is none."""
    try:
        names = tuple(NodeSet(text))
    except NodeSetException as error:
        raise InputError(f"--nodes {text}: no set of nodes: {error}; write for example node[1-3,7] or a,b") from error
    if not names:
        raise InputError(f"--nodes {text}: names no node; write for example node[1-3,7] or a,b")
    return names
