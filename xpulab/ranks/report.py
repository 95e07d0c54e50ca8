"""What became of the ranks of a run that failed, for a reader: the root cause, then every rank."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from xpulab.checks.ledger import ledger
from xpulab.doctor.remedies import match, remedy_on
from xpulab.ranks import root_cause, stacks
from xpulab.ranks.outcome import ABSENT, KILLED, RETURNED, Rank, RunOutcome

_PRINTED_CHARACTERS = 1500
_OF_PADDLE = re.compile(r"(?m)^=+ Modified FLAGS detected =+\n(?:FLAGS\(.*\n)*=+\n")
"""What dist.init_parallel_env() writes to standard error in every rank."""
_LAUNCHER_CHARACTERS = 3000


@dataclass(frozen=True)
class RankReport:
    """What became of one rank.

    outcome: "returned", "raised", "killed" (by a signal, or it ended without an error message), "late" (still at work when
    the run was ended) or "absent" (it never started). reason: one line. detail: its traceback, or its stack. step: what it
    last called ranks.step() with, or "". printed: the end of its output.
    """

    rank: int
    outcome: str
    reason: str
    detail: str
    step: str
    printed: str


class _Failure(BaseException):
    """What both exceptions are: the rank that is the root cause (None: no rank can be singled out), and a report of each."""

    def __init__(self, root_cause: int | None, why: str, reports: Sequence[RankReport], launcher_log: str = "") -> None:
        self.root_cause, self.reports = root_cause, tuple(reports)
        super().__init__(_format(root_cause, why, self.reports, launcher_log))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback, which would only lead through this package."""
        return [f"{type(self).__name__}: {self}"]


class RanksFailed(_Failure, RuntimeError):
    """Not every rank has returned.

    root_cause: the earliest rank that failed for a reason of its own, or the one that never arrived where the others wait;
    None when they are all in the same case. reports: one for each rank.
    """


class RanksInterrupted(_Failure, KeyboardInterrupt):
    """The run was interrupted; reports show where each rank stood, root_cause as in RanksFailed."""


def failure_of(run: RunOutcome) -> RanksFailed | RanksInterrupted:
    """The exception for a run that has not succeeded."""
    rank, why = root_cause.find(run.ranks)
    reports = [_report(run, each) for each in run.ranks]
    started = any(each.outcome != ABSENT for each in run.ranks)
    launcher_log = "" if started else run.launcher_log[-_LAUNCHER_CHARACTERS:]
    if run.interrupted:
        return RanksInterrupted(rank, f"interrupted; {why}" if why else "interrupted", reports, launcher_log)
    return RanksFailed(rank, why, reports, launcher_log)


def _report(run: RunOutcome, rank: Rank) -> RankReport:
    return RankReport(
        rank=rank.number,
        outcome=rank.outcome,
        reason=_reason(run, rank),
        detail=stacks.with_cells(rank.raised.trace) if rank.raised else rank.stack.text,
        step=rank.steps[-1] if rank.steps else "",
        printed=_OF_PADDLE.sub("", rank.printed)[-_PRINTED_CHARACTERS:],
    )


def _reason(run: RunOutcome, rank: Rank) -> str:
    if rank.raised is not None:
        first = next(iter(rank.raised.message.strip().splitlines()), "")
        return f"{rank.raised.kind}: {first}" if first else rank.raised.kind
    if rank.outcome == RETURNED:
        return "it has returned"
    if rank.outcome == ABSENT:
        return "it never started" + (f": {_format_status(rank.status)}" if rank.status else "")
    had_returned = rank.value is not None
    if rank.outcome == KILLED:
        return ("it has returned, and then: " if had_returned else "") + _format_status(rank.status)
    if had_returned:
        return "it has returned, but its process does not end"
    place = stacks.place_of_reader(rank.stack)
    doing = "waits for other ranks" if root_cause.waits(rank) else "was still at work"
    return f"{doing} after {run.seconds:.0f} s" + (f": {place}" if place else "")


def _format_status(status: int | None) -> str:
    if status is None:
        return "it ended without an error message"
    if status >= 0:
        return f"it ended with exit code {status}, without an error message"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"killed by signal {-status}"


def _known_causes(root_cause: int | None, reports: tuple[RankReport, ...], launcher_log: str) -> list[str]:
    """Cause and command for what the ranks that have not returned wrote; those of the root cause first."""
    failed = sorted((each for each in reports if each.outcome != RETURNED), key=lambda each: each.rank != root_cause)
    texts = ["\n".join((each.reason, each.detail, each.printed)) for each in failed] + [launcher_log]
    known = {row.id: row for text in texts for row in match(text)}
    return [line for row in known.values() for line in (f"cause: {row.cause}", f"fix: {remedy_on(row, ledger.device)}")]


def _format(root_cause: int | None, why: str, reports: tuple[RankReport, ...], launcher_log: str) -> str:
    because = f" ({why})" if why else ""
    if root_cause is None:
        lines = [f"no rank can be singled out{because}"]
    else:
        lines = [f"root cause: rank {root_cause}: {reports[root_cause].reason}{because}"]
    lines += _known_causes(root_cause, reports, launcher_log)
    for report in reports:
        lines += ["", f"rank {report.rank} {report.outcome}: {report.reason}"]
        lines += [f"last step: {report.step}"] if report.step else []
        lines += [report.detail.rstrip()] if report.detail.strip() else []
        lines += ["printed:", report.printed.rstrip()] if report.printed.strip() else []
    if launcher_log.strip():
        lines += ["", "paddle.distributed.launch:", launcher_log.rstrip()]
    return "\n".join(lines)
