"""One fleet run from nodes to the comparison: choose, submit, summarize, write what there is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from xpulab.errors import InputError
from xpulab.fleet.cluster.answer import LEFT_OUT, Answer
from xpulab.fleet.cluster.drain import drain, drain_commands, format_command
from xpulab.fleet.cluster.engine import Engine
from xpulab.fleet.cluster.folder import RECORD, answers_in
from xpulab.fleet.cluster.progress import progress_on
from xpulab.fleet.cluster.slurm import Slurm
from xpulab.fleet.cluster.ssh import Ssh
from xpulab.fleet.cluster.submit import Order, submit
from xpulab.fleet.cluster.summary import Summary, format_summary, summarize, to_json
from xpulab.fleet.compare.report import write
from xpulab.fleet.shell_words import shell_words

ENGINES = ("slurm", "ssh")


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
class Deadlines:
    """run, wait: seconds for the run of a node, and for its turn. retries: of a lost task."""

    run: float
    wait: float
    retries: int


@dataclass(frozen=True)
class FleetRun:
    """summary: of all nodes. text: for a terminal. interrupted: whether Ctrl-C ended it."""

    summary: Summary
    text: str
    interrupted: bool = False


def engine_named(name: str, partition: str | None, options: str) -> Engine:
    """The engine. options: as a shell reads them. Raises InputError for another name, and for what an engine does not have."""
    words = shell_words("--engine-options", options)
    if name == "slurm":
        return Slurm(partition, words)
    if name == "ssh":
        if partition is not None:
            raise InputError(f"--partition {partition}: only Slurm has partitions; remove it, or use --engine slurm")
        return Ssh(words)
    raise InputError(f"--engine {name}: no such engine; choose {' or '.join(ENGINES)}")


def command_on_nodes(xpulab: str | None) -> list[str]:
    """The words that start xpulab on a node: those given, or what runs here."""
    return [sys.executable, "-m", "xpulab"] if xpulab is None else list(shell_words("--xpulab", xpulab))


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

    def command(node: str) -> list[str]:
        deliver = ["--end-with-stdin"] if shared is None else ["--shared", str(shared)]
        return [*xpulab, "fleet", "task", "--node", node, "--limit", str(deadlines.run), *deliver, "--", *asked.arguments]

    order = Order(command, folder, deadlines.run, deadlines.wait, retries=deadlines.retries)
    what = f"level {asked.level} on {asked.device}"
    console.print(f"{engine.name}: {len(chosen.nodes)} nodes, {what}", highlight=False, markup=False, soft_wrap=True)
    for node, why in chosen.left_out.items():
        console.print(f"left out: {node}: {why}", highlight=False, markup=False, soft_wrap=True)
    started = time.monotonic()
    submitted = submit(chosen.nodes, order, engine, progress_on(console, chosen.nodes))
    left_out = [Answer(node, LEFT_OUT, why) for node, why in chosen.left_out.items()]
    summary = summarize([*submitted.answers, *left_out], folder)
    stored = to_json(summary, engine.name, _now(), time.monotonic() - started, submitted.interrupted)
    notes = [_format_drain(summary), _store(stored, summary, folder)]
    return FleetRun(summary, "\n".join(filter(None, (format_summary(summary), *notes))), submitted.interrupted)


def show(folder: Path) -> FleetRun:
    """The comparison of what lies in a folder; nothing is written. Raises InputError when it holds no run."""
    summary = summarize(answers_in(folder), folder)
    return FleetRun(summary, "\n".join(filter(None, (format_summary(summary), _format_drain(summary)))))


def drain_now(summary: Summary) -> Iterator[str]:
    """Execute the drain commands; a sentence for each."""
    yield from drain(summary)


def _format_drain(summary: Summary) -> str:
    commands = [format_command(command) for command in drain_commands(summary)]
    return "\n".join(["with Slurm, these commands take the nodes out of service:", *commands]) if commands else ""


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
        return f"{folder / RECORD} cannot be written: {error.strerror}"
    except InputError as error:
        return str(error)
    return f"report: {page}"


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
