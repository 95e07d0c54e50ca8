"""result.json: what came of a run, for programs. Its schema is data/schema/result.schema.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict
from xpulab.records.record import Record

SCHEMA = 1
_GREEN = {"passed", "partial"}

PARTIAL = (
    "Partial run: only the sections of the checks that --check named, and what these need, were run. "
    "It does not say whether this machine is ready."
)
"""Stands in every report of a partial run."""

SCOPE = {
    "cpu": "This ran on the CPU. It says that the software fits together and trains correctly there; it says nothing about "
    "the kernels, the collectives or the speed of an accelerator.",
    "gpu": "This ran on a GPU, a lane that the authors of the suite have not yet run themselves.",
    "xpu": "This ran on a Kunlun XPU, a lane that the authors of the suite have not yet run themselves.",
    "sim": "This ran on simulated cards: their memory is the host's, their operators run on the CPU and their collectives "
    "go through shared memory. It checks the path through Paddle's device layer (placement, copies, streams, memory "
    "accounting, process groups); it says nothing about Kunlun's kernels, its collective library or the speed of a card.",
}
"""By device: what a green run on it says, and what it does not. It stands in every report."""


def as_json(verdicts: Sequence[Verdict], target: Target, seconds: float, folder: Path) -> dict[str, Any]:
    """The whole run as JSON values; paths are relative to the folder that holds the report."""
    contexts = [verdict.run_context for verdict in verdicts if verdict.run_context]
    result = {
        "schema": SCHEMA,
        "outcome": outcome(verdicts),
        "green": is_green(verdicts),
        "device": target.device,
        "scope": SCOPE[target.device],
        "level": target.level,
        "cards": target.cards,
        "seconds": round(seconds, 1),
        "machine": contexts[0].machine if contexts else {},
        "versions": contexts[0].versions if contexts else {},
        "notebooks": [_notebook(verdict, folder) for verdict in verdicts],
    }
    return _storable(result)


def outcome(verdicts: Sequence[Verdict]) -> str:
    """ "partial" when only some sections were asked for, so that it says nothing of the machine; else "passed" or "failed"."""
    if any(verdict.partial for verdict in verdicts):
        return "partial"
    return "passed" if is_green(verdicts) else "failed"


def is_green(verdicts: Sequence[Verdict]) -> bool:
    """Whether at least one notebook is green, and every other one is green or was not to run here."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return bool(outcomes & _GREEN) and outcomes <= {*_GREEN, "skipped"}


def _notebook(verdict: Verdict, folder: Path) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "title": verdict.title,
        "outcome": verdict.outcome,
        "seconds": verdict.run.seconds if verdict.run else 0.0,
        "reason": "; ".join(verdict.reasons) or None,
        "notes": list(verdict.notes),
        "planned": len(verdict.records),
        "compared": verdict.compared,
        "controls_rejected": sum(record.control == "rejected" for record in verdict.records),
        "executed": verdict.executed.relative_to(folder).as_posix() if verdict.executed else None,
        "checks": [_check(record) for record in verdict.records],
    }


def _check(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "outcome": record.outcome,
        "means": record.means,
        "measured": record.measured,
        "expected": record.expected,
        "control": record.control,
        "capability": record.capability,
        "seconds": round(record.seconds, 4),
        "reason": record.reason,
        "rows": [
            {
                "case": row.case,
                "outcome": row.outcome,
                "measured": row.measured,
                "expected": row.expected,
                "control": row.control,
                "reason": row.reason,
            }
            for row in record.rows
        ],
    }


def _storable(value: Any) -> Any:
    """The value with NaN and infinity, which JSON does not have, as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _storable(entry) for key, entry in value.items()}
    return [_storable(entry) for entry in value] if isinstance(value, list | tuple) else value
