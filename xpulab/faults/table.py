"""What `xpulab selftest` prints: a line a fault, survivors first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from xpulab.faults.fault import Fault
from xpulab.faults.selftest import Control, Trial


def outcome(trial: Trial) -> str:
    """One word."""
    return "SURVIVED" if trial.survived else "caught  "


def as_text(trials: Sequence[Trial]) -> str:
    """A block a fault: what was expected to see it, what did and after how long; then how many were caught."""
    ordered = sorted(trials, key=lambda trial: (not trial.survived, trial.fault.notebook, trial.fault.name))
    lines = []
    for trial in ordered:
        fault = trial.fault
        lines.append(f"{outcome(trial)}  {fault.name}: {fault.what} ({fault.notebook}, {fault.device}, {trial.seconds:.0f} s)")
        end = [f"the notebook's end, which says {fault.says!r}"] if fault.says else []
        lines.append(f"          expected  {', '.join(end or fault.seen_by)}")
        lines.append(f"          seen by   {', '.join([] if trial.survived else end) or ', '.join(trial.seen_by) or '-'}")
        if trial.survived:
            lines.append(f"          {trial.survived}")
    caught = sum(not trial.survived for trial in trials)
    return "\n".join([*lines, f"{caught} of {len(trials)} faults caught"])


def catalogue(faults: Iterable[Fault]) -> str:
    """A line a fault."""
    return "\n".join(f"{fault.name:<36} {fault.notebook:<28} {fault.device:<4} {fault.what}" for fault in faults)


def to_json(trials: Sequence[Trial]) -> dict[str, Any]:
    """All trials as a JSON object."""
    caught = sum(not trial.survived for trial in trials)
    return {"schema": 1, "caught": caught, "faults": [trial.to_json() for trial in trials]}


def controls_as_text(controls: Sequence[Control]) -> str:
    """A line for the sections that some faults share, those that prove nothing first; then how many are well."""
    ordered = sorted(controls, key=lambda control: (not control.wrong, control.notebook, control.checks))
    lines = []
    for control in ordered:
        outcome = "WRONG" if control.wrong else "well "
        ran = f"{control.notebook}, {control.device}, {control.cells[0]} of {control.cells[1]} cells, {control.seconds:.0f} s"
        lines.append(f"{outcome}  {', '.join(control.checks)} ({ran}): {', '.join(control.faults)}")
        if control.wrong:
            lines.append(f"       {control.wrong}")
    well = sum(not control.wrong for control in controls)
    return "\n".join([*lines, f"{well} of {len(controls)} well without a fault"])


def controls_to_json(controls: Sequence[Control]) -> dict[str, Any]:
    """All controls as a JSON object."""
    return {"schema": 1, "well": sum(not each.wrong for each in controls), "controls": [each.to_json() for each in controls]}
