"""The engine ssh, for sites without a scheduler: ClusterShell runs the command on many nodes at a time.

No folder needs to be shared: bundles come back through standard output. A connection that ends closes the standard input of the
task, and the task stops its run.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ClusterShell.Task import task_self
from ClusterShell.Worker.Ssh import WorkerSsh

from xpulab.errors import InputError
from xpulab.fleet.cluster.engine import Chosen, Look, node_names

CONNECTS_WITHIN = 15
"""Seconds; a node that does not answer by then is silent."""


@dataclass
class Ssh:
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

    def shared(self, folder: Path) -> Path | None:
        """As Engine."""
        return None

    def worker(self, node: str, command: Sequence[str], limit: float, handler: Any) -> Any:
        """As Engine."""
        task = task_self()
        task.set_info("ssh_options", shlex.join(self.options))
        task.set_info("connect_timeout", CONNECTS_WITHIN)
        return WorkerSsh(node, handler=handler, timeout=limit, command=shlex.join(command), stderr=True)

    def look(self, nodes: Iterable[str]) -> Mapping[str, Look]:
        """As Engine: nothing but the connection says anything about a node."""
        return {node: Look() for node in nodes}

    def cancel(self, nodes: Iterable[str]) -> None:
        """As Engine: the task ends when its connection does."""
