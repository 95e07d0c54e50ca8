"""What became of the ranks of a run that failed, for a reader: who is to blame, then every rank."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xpulab.ranks import root_cause, stacks

if TYPE_CHECKING:
    from xpulab.ranks.watch import Outcome

_PRINTED_CHARACTERS = 1500
_OF_PADDLE = re.compile(r"(?m)^=+ Modified FLAGS detected =+\n(?:FLAGS\(.*\n)*=+\n")
"""What dist.init_parallel_env() writes to standard error in every rank."""
_WORDS_CHARACTERS = 3000


@dataclass(frozen=True)
class RankReport:
    """What became of one rank.

    outcome: "returned", "raised", "killed" (by a signal, or it ended without a word), "late" (still at work when the run was
    ended) or "absent" (it never started). reason: one line. detail: its traceback, or its stack. step: what it last called
    ranks.step() with, or "". at: seconds from when the first rank entered the function to this one's end, 0.0 when it was
    late or absent. printed: the end of its output.
    """

    rank: int
    outcome: str
    reason: str
    detail: str
    step: str
    at: float
    printed: str


class _Report:
    """What both exceptions are: the rank to blame (None: no rank can be singled out), and a report of each rank."""

    def __init__(self, root_cause: int | None, why: str, reports: Sequence[RankReport], words: str = "") -> None:
        self.root_cause, self.reports = root_cause, tuple(reports)
        super().__init__(_text(root_cause, why, self.reports, words))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback, which would only lead through this package."""
        return [f"{type(self).__name__}: {self}"]


class RanksFailed(_Report, RuntimeError):
    """Not every rank has returned.

    root_cause: the rank that is to blame: the earliest that failed for a reason of its own, or that never arrived where the
    others wait; None when they are all in the same case. reports: one a rank.
    """


class RanksInterrupted(_Report, KeyboardInterrupt):
    """The run was interrupted; reports show where each rank stood, root_cause as in RanksFailed."""


def reports_of(outcome: Outcome) -> tuple[int | None, str, list[RankReport], str]:
    """What the exceptions are made of."""
    rank, why = root_cause.find(outcome.ends)
    reports = [_report(outcome, end) for end in outcome.ends]
    if outcome.interrupted:
        why = "interrupted" + (f"; {why}" if why else "")
    started = any(end.outcome != root_cause.ABSENT for end in outcome.ends)
    return rank, why, reports, "" if started else outcome.words[-_WORDS_CHARACTERS:]


def _report(outcome: Outcome, end: root_cause.End) -> RankReport:
    ended = end.outcome in (root_cause.RETURNED, root_cause.RAISED, root_cause.KILLED)
    return RankReport(
        rank=end.rank,
        outcome=end.outcome,
        reason=_reason(outcome, end),
        detail=outcome.texts[end.rank],
        step=outcome.steps[end.rank],
        at=round(max(0.0, end.at - outcome.started), 3) if ended else 0.0,
        printed=_OF_PADDLE.sub("", outcome.printed[end.rank])[-_PRINTED_CHARACTERS:],
    )


def _reason(outcome: Outcome, end: root_cause.End) -> str:
    status = outcome.statuses[end.rank]
    if end.outcome == root_cause.RETURNED:
        return "it has returned"
    if end.outcome == root_cause.RAISED:
        first = next(iter(end.message.strip().splitlines()), "")
        return f"{end.kind}: {first}" if first else end.kind
    if end.outcome == root_cause.ABSENT:
        return "it never started" + (f": {_status(status)}" if status else "")
    if end.outcome == root_cause.KILLED:
        return ("it has returned, and then: " if end.had_returned else "") + _status(status)
    if end.had_returned:
        return "it has returned, but its process does not end"
    place = stacks.place_of_reader(end.stack)
    doing = "waits for other ranks" if end.waits else "was still at work"
    return f"{doing} after {outcome.seconds:.0f} s" + (f": {place}" if place else "")


def _status(status: int | None) -> str:
    if status is None:
        return "it ended without a word"
    if status >= 0:
        return f"it ended with exit code {status}, without a word"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"killed by signal {-status}"


def _text(root_cause: int | None, why: str, reports: tuple[RankReport, ...], words: str) -> str:
    because = f" ({why})" if why else ""
    culprit = (
        f"rank {root_cause} is to blame: {reports[root_cause].reason}"
        if root_cause is not None
        else "no rank can be singled out"
    )
    lines = [culprit + because]
    for report in reports:
        lines += ["", f"rank {report.rank} {report.outcome}: {report.reason}"]
        lines += [f"last step: {report.step}"] if report.step else []
        lines += [report.detail.rstrip()] if report.detail.strip() else []
        lines += ["printed:", report.printed.rstrip()] if report.printed.strip() else []
    if words.strip():
        lines += ["", "paddle.distributed.launch:", words.rstrip()]
    return "\n".join(lines)
