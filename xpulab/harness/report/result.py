"""The result of a run, and result.json, which states it for programs. Its schema is data/schema/result.schema.json."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xpulab.devices import JUDGED
from xpulab.doctor import meant
from xpulab.doctor.meant import LostAccelerator
from xpulab.doctor.system import boot_id
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import Verdict
from xpulab.messages import N_
from xpulab.records.origin import date_of_now, node_name
from xpulab.records.record import GREEN_NOTEBOOKS, OUTCOMES, RIGHT, Record, Row, RunContext, is_green_run

SCHEMA = 1

PARTIAL = N_(
    "Partial run: only the sections of the checks that --check named, and what these need, were run. "
    "It does not say whether this machine is ready."
)
"""Stands in every report of a partial run."""

SCOPE = {
    "cpu": N_(
        "This ran on the CPU. It says that the software fits together and trains correctly there; it says nothing about "
        "the kernels, the collectives or the speed of an accelerator."
    ),
    "gpu": N_("This ran on a GPU, a lane that the authors of the suite have not yet run themselves."),
    "xpu": N_("This ran on a Kunlun XPU, a lane that the authors of the suite have not yet run themselves."),
    "sim": N_(
        "This ran on simulated cards: their memory is the host's, their operators run on the CPU and their collectives "
        "go through shared memory. It checks the path through Paddle's device layer (placement, copies, streams, memory "
        "accounting, process groups); it says nothing about Kunlun's kernels, its collective library or the speed of a card."
    ),
}
"""By device: what a green run on it says, and what it does not. It stands in every report."""

REHEARSAL_SCOPE = N_(
    "This was a rehearsal: no card was judged. Simulated cards stood for another device, with its known issues, its refusals "
    "and its way to start kernels and ranks, and computed with the CPU's kernels."
)
"""The same of a run with --as."""

RELEASE_SCOPE = N_(
    "This says whether the release does what its options say, the same on every machine; it says nothing about this machine."
)
"""The same of a run of the notebooks that judge a release."""

RELEASED = ("paddlepaddle", "paddlenlp", "paddleformers")
"""The beginnings of the names of the packages that a release is made of."""

_DIGEST_BYTES = 8
"""Two different values have the same digest with a probability of 2^-64."""
_LOSS = "loss"

DEFECTS = frozenset({"known", "fixed"})
"""The outcomes of checks that are about a listed defect of the software."""

PREDICTIONS = frozenset({"predicted", "refuted"})
"""The outcomes of checks that are about what is expected on this device, and was never seen."""


@dataclass(frozen=True)
class Result:
    """The result of a run of several notebooks.

    options: what was asked for. verdicts: one for each notebook. seconds: how long the run took.
    folder: the absolute path of the folder that holds the reports and the executed notebooks.
    date: when it ended, in local time with the time zone's offset from UTC, "2026-11-22T03:10:00+00:00"; of one that was
    resumed, when its oldest notebook had ended.
    node: the name of the machine. boot: the one that all of it ran in; None where that is not known, or there were several.
    lost: the accelerator that the machine is meant to have and that Paddle cannot use, so that nothing ran; else None.
    """

    options: RunOptions
    verdicts: tuple[Verdict, ...]
    seconds: float
    folder: Path
    date: str = field(default_factory=date_of_now)
    node: str = field(default_factory=node_name)
    boot: str | None = field(default_factory=boot_id)
    lost: LostAccelerator | None = None

    @property
    def is_partial(self) -> bool:
        """Whether only some sections were asked for."""
        return any(verdict.partial for verdict in self.verdicts)

    @property
    def is_green(self) -> bool:
        """Whether at least one notebook is green, and every other one is green or was not to run here."""
        return is_green_run(verdict.outcome for verdict in self.verdicts)

    @property
    def no_verdict(self) -> str | None:
        """What around the run kept it from a verdict, with its notebook; None where it has one."""
        red = [verdict for verdict in self.verdicts if verdict.outcome in ("failed", "missing")]
        if self.lost or not red or not all(verdict.no_verdict for verdict in red):
            return None
        return N_("{name}: {cause}", name=red[0].name, cause=red[0].no_verdict)

    @property
    def outcome(self) -> str:
        """ "unknown" without a verdict, "partial" when only some sections were asked for, else "passed" or "failed"."""
        if self.no_verdict:
            return "unknown"
        if self.is_partial:
            return "partial"
        return "passed" if self.is_green else "failed"

    @property
    def scope(self) -> str:
        """What a run on this device says, and what it does not."""
        if self.lost:
            return N_("Nothing ran: {headline}", headline=self.lost.headline)
        if self.options.stands_for:
            return REHEARSAL_SCOPE
        return RELEASE_SCOPE if self.is_of_release else SCOPE[self.options.device]

    @property
    def is_of_release(self) -> bool:
        """Whether it judges the release of Paddle and PaddleNLP, and not the machine."""
        return bool(self.verdicts) and all(verdict.of_release for verdict in self.verdicts)

    @property
    def judged(self) -> str:
        """What the verdict is about: "CPU", "GPU", "XPU", "simulated cards", or the release with its versions."""
        if self.options.stands_for:
            return N_("rehearsal for {device}, no card was judged", device=JUDGED[self.options.stands_for])
        if not self.is_of_release:
            return JUDGED[self.options.device]
        versions = self.run_context.versions.items() if self.run_context else ()
        named = [f"{name} {version}" for name, version in versions if name.startswith(RELEASED)]
        return ", ".join(named) or N_("release")

    @property
    def verdict(self) -> str:
        """The verdict in words, which name what was judged: "CPU: READY"."""
        if self.no_verdict:
            word = N_("no verdict")
        elif self.is_partial:
            word = N_("partial, no verdict")
        elif self.options.stands_for:
            word = N_("green") if self.is_green else N_("red")
        elif self.is_of_release:
            word = N_("does what it says") if self.is_green else N_("does not do what it says")
        else:
            word = N_("READY") if self.is_green else N_("NOT READY")
        return N_("{judged}: {word}", judged=self.judged, word=word)

    @property
    def run_context(self) -> RunContext | None:
        """Where it ran, as the first notebook recorded it that did."""
        return next((verdict.run_context for verdict in self.verdicts if verdict.run_context), None)

    def records(self, outcomes: Collection[str]) -> list[Record]:
        """Those of all notebooks that have one of these outcomes."""
        return [record for verdict in self.verdicts for record in verdict.records if record.outcome in outcomes]

    def count(self, outcome: str) -> int:
        """How many checks have this outcome."""
        return len(self.records({outcome}))

    @property
    def green_notebooks(self) -> int:
        """How many notebooks are green."""
        return sum(verdict.outcome in GREEN_NOTEBOOKS for verdict in self.verdicts)

    @property
    def planned(self) -> int:
        """How many checks were planned."""
        return sum(len(verdict.records) for verdict in self.verdicts)

    @property
    def compared(self) -> int:
        """How many checks compared something."""
        return sum(verdict.compared for verdict in self.verdicts)

    @property
    def controls_rejected(self) -> int:
        """How many controls were rejected."""
        return sum(verdict.controls_rejected for verdict in self.verdicts)

    def executed(self, verdict: Verdict) -> str | None:
        """The path of an executed notebook, relative to the folder; None when there is none."""
        return verdict.executed.relative_to(self.folder).as_posix() if verdict.executed else None


def to_json(result: Result) -> dict[str, Any]:
    """What result.json holds, as JSON values."""
    context, expected = result.run_context, meant.expected()
    return _storable(
        {
            "schema": SCHEMA,
            "outcome": result.outcome,
            "green": result.is_green,
            "judges": "rehearsal" if result.options.stands_for else "release" if result.is_of_release else "machine",
            "verdict": result.verdict,
            "reason": result.no_verdict,
            "device": result.options.device,
            "stands_for": result.options.stands_for,
            "scope": result.scope,
            "level": result.options.level,
            "is_whole": result.options.is_whole,
            "cards": result.options.cards,
            "expected": expected.count if expected and result.options.device != "cpu" else None,
            "seed": result.options.seed,
            "seconds": round(result.seconds, 1),
            "date": result.date,
            "node": result.node,
            "boot": result.boot,
            "outcomes": {outcome: result.count(outcome) for outcome in OUTCOMES},
            "lost": asdict(result.lost) if result.lost else None,
            "card_facts": [asdict(card) for card in context.card_facts] if context else [],
            "machine": context.machine if context else {},
            "versions": context.versions if context else {},
            "notebooks": [_notebook(result, verdict) for verdict in result.verdicts],
        }
    )


def _notebook(result: Result, verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "title": verdict.title,
        "outcome": verdict.outcome,
        "seconds": verdict.seconds,
        "reason": verdict.reason,
        "explanations": [asdict(known) for known in verdict.explanations],
        "planned": len(verdict.records),
        "compared": verdict.compared,
        "controls_rejected": verdict.controls_rejected,
        "executed": result.executed(verdict),
        "checks": [{**_check(record), "section": group.title} for group in verdict.groups for record in group.records],
    }


def _check(record: Record) -> dict[str, Any]:
    stored = asdict(record)
    rows = [{name: value for name, value in row.items() if name != "digest"} for row in stored["rows"]]
    digest, seconds = digest_of_check(record), round(record.seconds, 4)
    return {**stored, "capability": record.capability, "seconds": seconds, "digest": digest, "rows": rows}


def digest_of_check(record: Record) -> str | None:
    """All that a check measured as 16 hexadecimal digits, equal in two runs that measured the same to the last bit.

    None for a check that compared nothing that must repeat. Of a check against baselines it covers the losses, since rates and
    memory do not repeat; of others what is right, as what is wrong because of a known issue may be what was in memory before.
    """
    parts = list(_measured(record) if record.measurements else _right(record))
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest() if parts else None


def _measured(record: Record) -> Iterator[tuple[str, object]]:
    for measurement in record.measurements:
        if measurement.kind == _LOSS:
            yield measurement.case, measurement.values


def _right(record: Record) -> Iterator[tuple[str, object]]:
    for each in record.rows or (record,):
        if each.outcome in RIGHT:
            yield each.case if isinstance(each, Row) else "", each.digest or _stable(each.measured)


def _stable(measured: float | str | None) -> float | str | None:
    """Of an exception, which has no digest, only the type: the message may name a temporary folder."""
    return measured.partition(":")[0] if isinstance(measured, str) else measured


def _storable(value: Any) -> Any:
    """The value with NaN and infinity, which JSON does not have, as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _storable(entry) for key, entry in value.items()}
    return [_storable(entry) for entry in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
