"""What the reports of a trial's ranks say of the group: a finding, with the node that they point to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xpulab.fleet.across.links import KILLED, LATE, PASSED, RAISED, STOPPED, WRONG, RankReport
from xpulab.fleet.across.search import Finding

_CAUSES = (KILLED, LATE, RAISED, WRONG, STOPPED)
"""Outcomes that fail a group. A rank that was killed is a better reason than one that lost its connection because of it."""


def judged(nodes: Sequence[str], cards: int, reports: Sequence[RankReport], gone: Mapping[str, str]) -> Finding:
    """Whether the group passed, and else why. gone: nodes whose task has ended or does not answer, with the reason."""
    for node in nodes:
        if node in gone:
            return Finding(False, f"{node}: {gone[node]}", node)
    failed = [report for report in reports if report.outcome != PASSED]
    silent = [node for node in nodes if sum(report.node == node for report in reports) < cards]
    if silent:
        return Finding(False, f"{silent[0]}: its task does not answer", silent[0] if len(silent) == 1 else "")
    if not failed:
        return Finding(True)
    first = min(failed, key=lambda report: (_CAUSES.index(report.outcome), _order(report), report.rank))
    alike = {report.node for report in failed if _is_alike(report, first)}
    return Finding(False, f"rank {first.rank} on {first.node}: {first.reason}", first.node if len(alike) == 1 else "")


def _order(report: RankReport) -> int:
    """Among ranks of one outcome the most telling first: the one that is late and has come less far is where the others wait,
    and the one with the most wrong values is where they come from."""
    return {LATE: report.steps, WRONG: -len(report.bad)}.get(report.outcome, 0)


def _is_alike(report: RankReport, first: RankReport) -> bool:
    return report.outcome == first.outcome and _order(report) == _order(first)
