"""What was found between nodes, for people as text and for programs as JSON (data/schema/links.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from xpulab.devices import SIMULATED
from xpulab.fleet.across.pairs import Pair, typical
from xpulab.fleet.across.search import LINK, NODE, PAIR, RootCause
from xpulab.fleet.across.trials import Outcome

_SIMULATED = "simulated cards: this says nothing about a card or a network; they share one host's memory"


@dataclass(frozen=True)
class Verdict:
    """What a run found.

    nodes: in their order. cards: of each. addresses: by node. step: "JOB.STEP". causes: empty when all is well.
    complete: no trial was left out for their number. outcomes: of all trials. rates: GB/s of each measured pair.
    seconds: how long it took.
    """

    device: str
    cards: int
    nodes: tuple[str, ...]
    addresses: Mapping[str, str]
    step: str
    causes: tuple[RootCause, ...]
    complete: bool
    outcomes: tuple[Outcome, ...]
    rates: Mapping[Pair, float]
    seconds: float

    @property
    def green(self) -> bool:
        """Whether all nodes work together, and nothing was left out."""
        return not self.causes and self.complete


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as links.schema.json describes it."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "green": verdict.green,
        "complete": verdict.complete,
        "device": verdict.device,
        "cards": verdict.cards,
        "nodes": list(verdict.nodes),
        "addresses": dict(verdict.addresses),
        "step": verdict.step,
        "seconds": round(verdict.seconds, 1),
        "root_causes": [
            {**asdict(each), "nodes": list(each.nodes), "text": format_root_cause(each)} for each in verdict.causes
        ],
        "trials": [_trial(each) for each in verdict.outcomes],
        "skipped": _skipped(verdict.outcomes),
        "rates": [{"nodes": list(pair), "gb_per_second": round(rate, 4)} for pair, rate in verdict.rates.items()],
    }


def format_verdict(verdict: Verdict) -> str:
    """The verdict in lines."""
    ranks = f"{len(verdict.nodes)} nodes, {verdict.cards} {'card' if verdict.cards == 1 else 'cards'} each, {verdict.device}"
    lines = [f"{'GREEN' if verdict.green else 'RED'}  {ranks}; {len(verdict.outcomes)} trials in {verdict.seconds:.0f} s"]
    lines += [format_root_cause(each) for each in verdict.causes]
    if not verdict.causes and verdict.nodes:
        lines.append("all nodes work together")
    if not verdict.complete:
        lines.append("the search was not finished: no trial more was allowed (--trials)")
    if verdict.rates:
        lowest = min(verdict.rates, key=lambda pair: verdict.rates[pair])
        rate = f"{verdict.rates[lowest]:.3g} GB/s, {lowest[0]} and {lowest[1]}"
        lines.append(f"rates of {len(verdict.rates)} pairs: typical {typical(verdict.rates):.3g} GB/s, lowest {rate}")
    if verdict.device == SIMULATED:
        lines.append(_SIMULATED)
    return "\n".join(lines)


def format_root_cause(cause: RootCause) -> str:
    """One cause: what is wrong, how it was told, and the reason of the trial."""
    if cause.kind == NODE:
        what = f"{cause.nodes[0]} is wrong"
    elif cause.kind == LINK:
        what = f"link {cause.nodes[0]} - {cause.nodes[1]} is wrong"
    elif cause.kind == PAIR:
        what = f"{cause.nodes[0]}, {cause.nodes[1]} or the link between them is wrong"
    else:
        what = f"{', '.join(cause.nodes)} do not work together ({cause.kind})"
    return f"{what}: {cause.evidence}. {cause.reason}"


def _trial(outcome: Outcome) -> dict[str, Any]:
    bad = [{"rank": report.rank, "node": report.node, **check} for report in outcome.reports for check in report.bad]
    ranks = [
        {"rank": report.rank, "node": report.node, "outcome": report.outcome, "reason": report.reason, "step": report.step}
        for report in outcome.reports
        if report.outcome != "passed"
    ]
    return {
        "nodes": list(outcome.nodes),
        "passed": outcome.finding.passed,
        "reason": outcome.finding.reason,
        "suspect": outcome.finding.suspect,
        "seconds": round(outcome.seconds, 1),
        "checks_passed": sum(report.passed for report in outcome.reports),
        "checks_not_passed": bad,
        "ranks_not_passed": ranks,
    }


def _skipped(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {name: reason for each in outcomes for report in each.reports for name, reason in report.skipped.items()}
