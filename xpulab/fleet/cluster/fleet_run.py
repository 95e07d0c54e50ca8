"""One fleet run from nodes to the comparison: submit, give each node its status, write and print what there is."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet.anomaly import Anomaly
from xpulab.fleet.cluster.engines import Engine
from xpulab.fleet.cluster.submit import CANCELLED, LEFT_OUT, WAITING, Answer, Limits, submit
from xpulab.fleet.cluster.submit import SILENT as NO_MESSAGE
from xpulab.fleet.cluster.task import DISK, DONE
from xpulab.fleet.compare.comparison import Comparison, write
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.runs import Run, Unreadable, read_each
from xpulab.messages import N_, joined, labelled, one_line, padded, shown
from xpulab.records.origin import date_of_now

SCHEMA = 3
RECORD = "fleet.json"
"""What a fleet run writes beside the bundles; data/schema/fleet.schema.json."""

GREEN, RED, OUTLIER, SILENT, UNKNOWN = N_("green"), N_("red"), N_("outlier"), N_("silent"), N_("unknown")
STATUSES = (RED, OUTLIER, SILENT, UNKNOWN, LEFT_OUT, GREEN)
"""The status of a node, in the order of the report.

green: its run is green and like those of the others. red: a check failed, or the node itself says why it could not run.
outlier: its run is green, but not like those of the others. silent: it never answered, or stopped answering.
unknown: it has no verdict, and nothing says that this is because of the node. left out: drained or down before.
"""

_WITHOUT_A_RUN = {LEFT_OUT: LEFT_OUT, NO_MESSAGE: SILENT, WAITING: UNKNOWN, CANCELLED: UNKNOWN, DISK: UNKNOWN}


@dataclass(frozen=True)
class Node:
    """A node at the end. status: of STATUSES. sentence: why, or what was compared. repeat: the command for it; or ""."""

    answer: Answer
    status: str
    sentence: str
    repeat: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.answer.node


@dataclass(frozen=True)
class Summary:
    """nodes: by status, then as they were named.

    comparison: of the runs, with a note for each node that has none; None when no run has ended.
    """

    nodes: tuple[Node, ...]
    comparison: Comparison | None

    @property
    def is_green(self) -> bool:
        """Whether at least one node is green, and no other one that was used is anything else."""
        statuses = {node.status for node in self.nodes}
        return GREEN in statuses and statuses <= {GREEN, LEFT_OUT}

    @property
    def is_verdict(self) -> bool:
        """Whether at least one node was judged."""
        return any(node.status in (GREEN, RED, OUTLIER) for node in self.nodes)


def run(
    engine: Engine,
    nodes: str,
    arguments: Sequence[str],
    minutes: float,
    xpulab: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
) -> Summary:
    """Run `xpulab run` with these arguments on the nodes; the new folder gets a bundle for each, and RECORD.

    minutes: the time limit of each run. xpulab: the words that start it on a node. say: shows lines: progress, then all nodes.
    Raises InputError when nothing can be started, and KeyboardInterrupt when Ctrl-C ended it, after what there is was written.
    """
    chosen = engine.choose(nodes)
    used = [node for node, why in chosen.items() if not why]
    _prepare(folder)
    began, limits = time.monotonic(), Limits(minutes * 60)
    task = [*xpulab, "fleet", "task", "--limit", str(limits.run)]
    commands = {node: [*task, "--node", node, "--", *arguments] for node in used}

    def show(node: str, state: str) -> None:
        say(one_line(f"[{time.monotonic() - began:6.1f} s] {node}: {shown(state)}"))

    say(f"{engine.name}: {shown(N_('{nodes} nodes', nodes=len(used)))}: xpulab run {shlex.join(arguments)}")
    left_out = [Answer(node, LEFT_OUT, why) for node, why in chosen.items() if why]
    for answer in left_out:
        show(answer.node, f"{answer.outcome}: {answer.sentence}")
    answers, interrupted = submit(commands, folder, limits, engine, show)
    summary = summarize([*answers, *left_out], folder)
    say(format_summary(summary))
    say(_store(to_json(summary, engine.name, time.monotonic() - began, interrupted), summary, folder))
    if interrupted:
        raise KeyboardInterrupt
    return summary


def summarize(answers: Sequence[Answer], folder: Path) -> Summary:
    """The status of each node. folder: holds the bundles that the answers name."""
    read = {answer.node: read_each(folder / answer.bundle, answer.node) for answer in answers if answer.bundle}
    runs = {node: run for node, run in read.items() if isinstance(run, Run)}
    unreadable = {node: run for node, run in read.items() if isinstance(run, Unreadable)}
    comparison = None
    if any(run.is_finished for run in runs.values()):
        comparison = compare_machines(list(runs.values()), list(unreadable.values()))
    findings = comparison.findings if comparison else ()
    nodes = []
    for answer in answers:
        if answer.node in unreadable:
            nodes.append(Node(answer, UNKNOWN, unreadable[answer.node].reason))
        else:
            own = [finding for finding in findings if finding.node == answer.node]
            nodes.append(_node(answer, runs.get(answer.node), own))
    ordered = tuple(sorted(nodes, key=lambda node: STATUSES.index(node.status)))
    if comparison is None:
        return Summary(ordered, None)
    without = [f"{node.name} is {node.status}: {node.sentence}" for node in ordered if node.name not in runs]
    return Summary(ordered, replace(comparison, notes=(*comparison.notes, *without)))


def _node(answer: Answer, run: Run | None, findings: Sequence[Anomaly]) -> Node:
    """The status of a node by its answer, its run and the findings about it."""
    if answer.outcome in _WITHOUT_A_RUN:
        return Node(answer, _WITHOUT_A_RUN[answer.outcome], answer.sentence)
    sentence, repeat = _first(findings, run)
    if answer.outcome != DONE:
        both = "; ".join(filter(None, (answer.sentence, sentence)))
        return Node(answer, RED, both, repeat)
    if run is None:
        return Node(answer, UNKNOWN, N_("its bundle is missing"))
    if run.result["outcome"] == "unknown":
        return Node(answer, UNKNOWN, N_("no verdict: {cause}", cause=run.result["reason"]))
    if findings:
        return Node(answer, OUTLIER if run.result["green"] else RED, sentence, repeat)
    if not run.result["green"]:
        return Node(answer, UNKNOWN, N_("its run is {result}: no check was compared", result=run.result["outcome"]))
    compared, count = sum(notebook["compared"] for notebook in run.result["notebooks"]), len(run.result["notebooks"])
    partial = N_("a partial run, no verdict on the node: ") if run.result["outcome"] == "partial" else ""
    notebooks = N_("1 notebook") if count == 1 else N_("{count} notebooks", count=count)
    return Node(
        answer,
        GREEN,
        partial
        + N_(
            "{notebooks}, {compared} checks compared, {seconds} s",
            notebooks=notebooks,
            compared=compared,
            seconds=f"{answer.seconds:.0f}",
        ),
    )


def _first(findings: Sequence[Anomaly], run: Run | None) -> tuple[str, str]:
    """Of the first finding: its sentence with the number of the others, and the command that repeats it."""
    if not findings:
        return "", ""
    first, number = findings[0], len(findings) - 1
    sentence = first.sentence
    for notebook, check in run.checks() if run else ():
        if check["name"] == first.check and check["outcome"] == "missing" and notebook["reason"]:
            sentence = f"{notebook['name']}: {notebook['reason']}"  # a check that never ran says nothing; this says why
    sentence = N_("{sentence} (and {number} more)", sentence=sentence, number=number) if number else sentence
    return sentence, first.repeat


def to_json(summary: Summary, engine: str, seconds: float, interrupted: bool) -> dict[str, Any]:
    """What RECORD holds."""
    return {
        "schema": SCHEMA,
        "green": summary.is_green,
        "interrupted": interrupted,
        "engine": engine,
        "date": date_of_now(),
        "seconds": round(seconds, 1),
        "nodes": [
            {
                **asdict(node.answer),
                "status": node.status,
                "sentence": node.sentence,
                "repeat": node.repeat,
            }
            for node in summary.nodes
        ],
        "notes": list(summary.comparison.notes) if summary.comparison else [],
    }


def format_summary(summary: Summary) -> str:
    """In the chosen language a line for each node, what repeats a problem below it, and the verdict."""
    return "\n".join(map(one_line, _lines(summary)))


def _lines(summary: Summary) -> Iterator[str]:
    width = max((len(node.name) for node in summary.nodes), default=0)
    for node in summary.nodes:
        yield f"{padded(shown(node.status), 9)}{node.name:<{width}}  {shown(node.sentence)}"
        if node.repeat:
            yield f"{'':<11}{'':<{width}}{shown('rerun: ')}{node.repeat}"
    yield from (labelled("note: ", note) for note in (summary.comparison.notes if summary.comparison else ()))
    for finding in summary.comparison.findings if summary.comparison else ():
        if not finding.node:  # of no node: values without a majority
            yield labelled("note: ", finding.sentence)
    counts = Counter(node.status for node in summary.nodes)
    counted = ", ".join(f"{counts[status]} {shown(status)}" for status in STATUSES if counts[status] and status != GREEN)
    verdict, green = N_("green") if summary.is_green else N_("RED"), counts[GREEN]
    yield joined(
        filter(
            None,
            (
                shown(
                    N_("{verdict}: {green} of {nodes} nodes are green", verdict=verdict, green=green, nodes=len(summary.nodes))
                ),
                counted,
            ),
        )
    )


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder}: is not empty; name another folder with --out")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error


def _store(stored: dict[str, Any], summary: Summary, folder: Path) -> str:
    """Write RECORD and the comparison; returns where they are, or why they are not."""
    try:
        (folder / RECORD).write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
        page = write(summary.comparison, folder) if summary.comparison else folder / RECORD
    except OSError as error:
        return shown(N_("{folder} cannot be written: {strerror}", folder=folder / RECORD, strerror=error.strerror))
    except InputError as error:
        return shown(str(error))
    return labelled("report: ", str(page))
