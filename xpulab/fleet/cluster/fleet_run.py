"""One fleet run from nodes to the comparison: choose, submit, summarize, write what there is."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from xpulab.doctor.tool import run_tool
from xpulab.errors import InputError
from xpulab.fleet.cluster.answer import LEFT_OUT, RECORD, Answer, answers_in
from xpulab.fleet.cluster.engine import Engine, Ssh
from xpulab.fleet.cluster.progress import progress_on
from xpulab.fleet.cluster.slurm import Slurm
from xpulab.fleet.cluster.submit import Deadlines, submit
from xpulab.fleet.cluster.summary import Summary, format_summary, summarize, to_json
from xpulab.fleet.compare.report import write
from xpulab.messages import N_, labelled, shown

ENGINES = ("slurm", "ssh")
_ANSWERS_WITHIN = 30.0
"""Seconds that Slurm has to drain a node."""


@dataclass(frozen=True)
class Asked:
    """What runs on each node, as the options of `xpulab run` name it."""

    notebooks: tuple[str, ...]
    device: str
    level: str
    cards: int | None
    checks: tuple[str, ...]
    expect: int | None = None

    @property
    def arguments(self) -> list[str]:
        """What follows `xpulab` in the command."""
        cards = [] if self.cards is None else ["--cards", str(self.cards)]
        checks = [word for check in self.checks for word in ("--check", check)]
        expect = [] if self.expect is None else ["--expect", str(self.expect)]
        return ["run", *self.notebooks, "--device", self.device, "--level", self.level, *cards, *expect, *checks]


@dataclass(frozen=True)
class FleetRun:
    """summary: of all nodes. text: for a terminal, in the chosen language. interrupted: whether Ctrl-C ended it."""

    summary: Summary
    text: str
    interrupted: bool = False


def engine_named(name: str, partition: str | None, options: Sequence[str]) -> Engine:
    """The engine; options: further ones of srun or ssh. Raises InputError for another name, and for what it does not have."""
    if name == "slurm":
        return Slurm(partition, options)
    if name == "ssh":
        if partition is not None:
            raise InputError(f"--partition {partition}: only Slurm has partitions; remove it, or use --engine slurm")
        return Ssh(options)
    raise InputError(f"--engine {name}: no such engine; choose {' or '.join(ENGINES)}")


def run(
    engine: Engine, nodes: str, asked: Asked, deadlines: Deadlines, xpulab: Sequence[str], folder: Path, console: Console
) -> FleetRun:
    """Run what is asked for on the nodes; the new folder gets a bundle for each, and fleet.json.

    xpulab: the words that start it on a node. Raises InputError when nothing can be started.
    """
    from xpulab.harness.plan import make_plans

    chosen = engine.choose(nodes)
    make_plans(list(asked.notebooks), asked.level, list(asked.checks))  # what is wrong in them is said now, not by each node
    _prepare(folder)
    shared = engine.shared(folder)
    task = ["--limit", str(deadlines.run), *(["--shared", str(shared)] if shared else ["--end-with-stdin"])]
    commands = {node: [*xpulab, "fleet", "task", "--node", node, *task, "--", *asked.arguments] for node in chosen.nodes}
    begun = N_(f"{len(chosen.nodes)} nodes, level {asked.level} on {asked.device}")
    console.print(f"{engine.name}: {shown(begun)}", highlight=False, markup=False, soft_wrap=True)
    for node, why in chosen.left_out.items():
        console.print(f"{shown('left out: ')}{node}: {shown(why)}", highlight=False, markup=False, soft_wrap=True)
    started = time.monotonic()
    submitted = submit(commands, folder, deadlines, engine, progress_on(console, chosen.nodes))
    left_out = [Answer(node, LEFT_OUT, why) for node, why in chosen.left_out.items()]
    summary = summarize([*submitted.answers, *left_out], folder)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    stored = to_json(summary, engine.name, now, time.monotonic() - started, submitted.interrupted)
    notes = [_format_drain(summary), _store(stored, summary, folder)]
    return FleetRun(summary, "\n".join(filter(None, (format_summary(summary), *notes))), submitted.interrupted)


def show(folder: Path) -> FleetRun:
    """The comparison of what lies in a folder; nothing is written. Raises InputError when it holds no run."""
    summary = summarize(answers_in(folder), folder)
    return FleetRun(summary, "\n".join(filter(None, (format_summary(summary), _format_drain(summary)))))


def drain_commands(summary: Summary) -> Iterator[tuple[str, ...]]:
    """A command for each node that has a drain reason."""
    for node in summary.nodes:
        if node.reason is not None:
            yield "scontrol", "update", f"NodeName={node.node}", "State=DRAIN", f"Reason={node.reason}"


def drain(summary: Summary) -> Iterator[str]:
    """Execute the drain commands; a sentence for each."""
    for command in drain_commands(summary):
        ran = run_tool(command, _ANSWERS_WITHIN)
        node = command[2].removeprefix("NodeName=")
        yield N_(f"drained {node}") if ran.outcome == "ok" else N_(f"{node} was not drained: {ran.detail}")


def _format_drain(summary: Summary) -> str:
    """The commands as a shell reads them, below a line in the chosen language."""
    commands = []
    for *words, reason in drain_commands(summary):
        name, _, value = reason.partition("=")
        commands.append(f"{shlex.join(words)} {name}={shlex.quote(value)}")
    return "\n".join([shown("with Slurm, these commands take the nodes out of service:"), *commands]) if commands else ""


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder}: is not empty; name another folder with --out")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error


def _store(stored: dict[str, Any], summary: Summary, folder: Path) -> str:
    """Write fleet.json and the comparison; returns where they are, or why they are not."""
    try:
        (folder / RECORD).write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
        page = write(summary.comparison, folder) if summary.comparison else folder / RECORD
    except OSError as error:
        return shown(f"{folder / RECORD} cannot be written: {error.strerror}")
    except InputError as error:
        return shown(str(error))
    return labelled("report: ", str(page))
