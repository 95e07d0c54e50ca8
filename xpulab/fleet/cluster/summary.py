"""The end of a fleet run: each node with its status and one sentence, from what the nodes said and from the comparison."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet.cluster import answer as ended
from xpulab.fleet.cluster.answer import Answer
from xpulab.fleet.compare.comparison import Comparison
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.finding import Finding
from xpulab.fleet.outliers import DIFFERS, MISSING, RED_CHECK, RED_NOTEBOOK, SLOW, UNFINISHED
from xpulab.fleet.runs import Reader, Run, Unreadable
from xpulab.messages import N_, joined, labelled, padded, shown

SCHEMA = 1

GREEN, RED, OUTLIER, SILENT, UNKNOWN, LEFT_OUT = (
    N_("green"),
    N_("red"),
    N_("outlier"),
    N_("silent"),
    N_("unknown"),
    N_("left out"),
)
STATUSES = (RED, OUTLIER, SILENT, UNKNOWN, LEFT_OUT, GREEN)
"""The status of a node, in the order of the report.

green: its run is green and like those of the others. red: a check failed, or the node itself says why it could not run.
outlier: its run is green, but not like those of the others. silent: it never answered, or stopped answering.
unknown: it has no verdict, and nothing says that this is because of the node. left out: drained or down before.
"""

_RED_KINDS = frozenset({UNFINISHED, RED_NOTEBOOK, RED_CHECK, MISSING})
"""What a run says of itself; the other kinds are differences from other runs."""

_OF_OUTCOME = {
    "late": RED,
    "disk": RED,
    "failed": RED,
    "undelivered": UNKNOWN,
    ended.LEFT_OUT: LEFT_OUT,
    ended.LOST: SILENT,
    ended.SILENT: SILENT,
    ended.WAITING: UNKNOWN,
    ended.CANCELLED: UNKNOWN,
}
"""By outcome of an answer without a verdict, the status of its node."""

_DRAINED_KINDS = frozenset({UNFINISHED, RED_NOTEBOOK, RED_CHECK, DIFFERS, SLOW})
"""What a card or a link can be the cause of. A check that a run does not have, memory in use and a serial number that two
nodes have need a look at the installation first."""

_LONGEST_REASON = 300
"""Characters of a drain reason; Slurm shows it in one line."""


@dataclass(frozen=True)
class Summarized:
    """A node. status: of STATUSES. sentence: why, or what was compared. repeat: the command that repeats it there; or "".

    reason: for `scontrol update ... Reason=`; None for a node that is not to be drained.
    """

    answer: Answer
    status: str
    sentence: str
    repeat: str = ""
    reason: str | None = None

    @property
    def node(self) -> str:
        """Its name."""
        return self.answer.node


@dataclass(frozen=True)
class Summary:
    """nodes: by status, then as they were named. notes: about the fleet as a whole.

    comparison: of the runs, with a note for each node that has none; None when no run has ended.
    """

    nodes: tuple[Summarized, ...]
    notes: tuple[str, ...]
    comparison: Comparison | None

    @property
    def is_green(self) -> bool:
        """Whether at least one node is green, and no other one that was used is anything else."""
        statuses = {node.status for node in self.nodes}
        return GREEN in statuses and statuses <= {GREEN, LEFT_OUT}


def summarize(answers: Sequence[Answer], folder: Path) -> Summary:
    """The status of each node. folder: holds the bundles that the answers name."""
    reader, runs, unreadable = Reader(), {}, {}
    for each in answers:
        if each.bundle:
            try:
                runs[each.node] = reader.read(folder / each.bundle, each.node)
            except InputError as error:
                unreadable[each.node] = Unreadable(each.node, folder / each.bundle, str(error))
    comparison = _compared(list(runs.values()), list(unreadable.values()))
    by_node: dict[str, list[Finding]] = defaultdict(list)
    for finding in comparison.findings if comparison else ():
        if finding.node in runs:
            by_node[finding.node].append(_with_cause(finding, runs[finding.node]))
    nodes = [_summarized(each, runs.get(each.node), by_node[each.node], unreadable.get(each.node)) for each in answers]
    drained, common = _with_reasons(nodes, by_node)
    ordered = tuple(sorted(drained, key=lambda node: STATUSES.index(node.status)))
    if comparison is None:
        return Summary(ordered, tuple(common), None)
    without = [f"{node.node} is {node.status}: {node.sentence}" for node in ordered if node.node not in runs]
    of_fleet = [finding.sentence for finding in comparison.findings if not finding.node]
    notes = (*comparison.notes, *of_fleet, *common)
    return Summary(ordered, notes, replace(comparison, notes=(*comparison.notes, *common, *without)))


def _compared(runs: Sequence[Run], unreadable: Sequence[Unreadable]) -> Comparison | None:
    """The comparison within each type of machine; None when no run has ended."""
    return compare_machines(runs, unreadable, mixed=True) if any(run.is_finished for run in runs) else None


def _with_cause(finding: Finding, run: Run) -> Finding:
    """A check that never ran says nothing; why its notebook stopped does."""
    for notebook, check in run.checks() if finding.kind == MISSING else ():
        if check["name"] == finding.check and notebook["reason"]:
            return replace(finding, kind=RED_NOTEBOOK, check="", sentence=f"{notebook['name']}: {notebook['reason']}")
    return finding


def _summarized(answer: Answer, run: Run | None, findings: Sequence[Finding], unreadable: Unreadable | None) -> Summarized:
    repeat = findings[0].repeat if findings else ""
    found, number = findings[0].sentence if findings else "", len(findings) - 1
    found = N_(f"{found} (and {number} more)") if number > 0 else found
    if answer.outcome in _OF_OUTCOME:
        return Summarized(answer, _OF_OUTCOME[answer.outcome], "; ".join(filter(None, (answer.sentence, found))), repeat)
    if run is None:
        return Summarized(answer, UNKNOWN, unreadable.reason if unreadable else N_("its bundle is missing"))
    if findings:
        status = RED if any(each.kind in _RED_KINDS for each in findings) else OUTLIER
        return Summarized(answer, status, found, repeat)
    compared = sum(notebook["compared"] for notebook in run.result["notebooks"])
    seconds = f"{run.result['seconds']:.0f} s"
    if not run.result.get("green"):
        return Summarized(answer, UNKNOWN, N_(f"its run is {run.result['outcome']}: no check was compared"))
    partial = N_("a partial run, no verdict on the node: ") if run.result["outcome"] == "partial" else ""
    count = len(run.result["notebooks"])
    notebooks = N_("1 notebook") if count == 1 else N_(f"{count} notebooks")
    sentence = partial + N_(f"{notebooks}, {compared} checks compared, {seconds}")
    if answer.gone:
        return Summarized(answer, SILENT, N_(f"its run is green, but the node stopped answering: {answer.gone}"))
    return Summarized(answer, GREEN, sentence)


def _with_reasons(nodes: Sequence[Summarized], by_node: Mapping[str, list[Finding]]) -> tuple[list[Summarized], list[str]]:
    """The nodes with their drain reasons, and the notes about what most nodes share: that is not a node's problem."""
    problems = {node.node: _problem(node, by_node[node.node]) for node in nodes}
    counts = Counter(problem[0] for problem in problems.values() if problem)
    answered = sum(node.status in (GREEN, RED, OUTLIER) for node in nodes)
    common = {what for what, count in counts.items() if count > 1 and 2 * count > answered}
    notes = [
        N_(
            f"{counts[what]} of {answered} nodes have the same problem ({what}): look for its cause in software or settings "
            "first; no command drains them"
        )
        for what in sorted(common)
    ]
    reasons = {name: problem[1] for name, problem in problems.items() if problem and problem[0] not in common}
    return [Summarized(node.answer, node.status, node.sentence, node.repeat, reasons.get(node.node)) for node in nodes], notes


def _problem(node: Summarized, findings: Sequence[Finding]) -> tuple[str, str] | None:
    """What is wrong, in a form that can be counted, and the drain reason; None when the node is not to be drained."""
    if node.answer.outcome in ("late", "disk", "failed"):
        return f"outcome {node.answer.outcome}", _reason(f"xpulab: {node.answer.sentence}")
    draining = [each for each in findings if each.kind in _DRAINED_KINDS and (each.check or each.kind != DIFFERS)]
    if node.status not in (RED, OUTLIER) or not draining:
        return None
    first = draining[0]
    if not first.check:
        return first.kind, _reason(f"xpulab: {first.sentence}; rerun: {first.repeat}")
    case = f" ({first.case})" if first.case else ""
    measured = f"{first.check}{case} measured {first.measured} expected {first.expected}"
    return f"{first.kind} {first.check}", _reason(f"xpulab {measured}; rerun: {first.repeat}")


def _reason(text: str) -> str:
    """One line, cut in its middle, so that the command at its end stays whole."""
    line = " ".join(f"[node_problem] {text}".split()).replace('"', "'")
    if len(line) <= _LONGEST_REASON:
        return line
    end = line[line.rfind("; rerun: ") :] if "; rerun: " in line else ""
    return f"{line[: _LONGEST_REASON - len(end) - 4]} ...{end}"


def to_json(summary: Summary, engine: str, date: str, seconds: float, interrupted: bool) -> dict[str, Any]:
    """What fleet.json holds; its schema is data/schema/fleet.schema.json."""
    return {
        "schema": SCHEMA,
        "green": summary.is_green,
        "interrupted": interrupted,
        "engine": engine,
        "date": date,
        "seconds": round(seconds, 1),
        "nodes": [
            {
                "status": node.status,
                "sentence": node.sentence,
                "repeat": node.repeat,
                "drain": node.reason,
                "answer": asdict(node.answer),
            }
            for node in summary.nodes
        ],
        "notes": list(summary.notes),
    }


def format_summary(summary: Summary) -> str:
    """In the chosen language a line for each node, what repeats a problem below it, and the verdict."""
    return "\n".join(_lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    width = max((len(node.node) for node in summary.nodes), default=0)
    for node in summary.nodes:
        yield f"{padded(shown(node.status), 9)}{node.node:<{width}}  {shown(node.sentence)}"
        if node.repeat:
            yield f"{'':<11}{'':<{width}}{shown('rerun: ')}{node.repeat}"
    yield from (labelled("note: ", note) for note in summary.notes)
    counts = Counter(node.status for node in summary.nodes)
    counted = ", ".join(f"{counts[status]} {shown(status)}" for status in STATUSES if counts[status] and status != GREEN)
    verdict, green = N_("green") if summary.is_green else N_("RED"), counts[GREEN]
    yield joined(filter(None, (shown(f"{verdict}: {green} of {len(summary.nodes)} nodes are green"), counted)))
