"""The commands of Slurm that take nodes out of service, to print, or to execute."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from xpulab.doctor.tool import run_tool
from xpulab.fleet.cluster.summary import Summary

_ANSWERS_WITHIN = 30.0


def drain_commands(summary: Summary) -> Iterator[tuple[str, ...]]:
    """A command for each node that has a drain reason."""
    for node in summary.nodes:
        if node.reason is not None:
            yield "scontrol", "update", f"NodeName={node.node}", "State=DRAIN", f"Reason={node.reason}"


def format_command(command: tuple[str, ...]) -> str:
    """The command as a shell reads it."""
    *words, last = command
    name, _, value = last.partition("=")
    return f"{shlex.join(words)} {name}={shlex.quote(value)}"


def drain(summary: Summary) -> Iterator[str]:
    """Execute the commands; a sentence for each."""
    for command in drain_commands(summary):
        ran = run_tool(command, _ANSWERS_WITHIN)
        node = command[2].removeprefix("NodeName=")
        yield f"drained {node}" if ran.outcome == "ok" else f"{node} was not drained: {ran.detail}"
