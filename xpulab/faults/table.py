"""What `xpulab selftest` prints: a block for each trial, missed faults first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from xpulab.chapters.shared.fault import Fault
from xpulab.faults.selftest import Control, Trial
from xpulab.messages import padded, shown


def format_outcome(trial: Trial) -> str:
    """One word in eight columns, in the chosen language."""
    return padded(shown("MISSED") if trial.missed else shown("detected"), 8)


def format_name(trial: Trial) -> str:
    """The fault's name, with the level where it is not quick."""
    return trial.fault.name if trial.level == "quick" else f"{trial.fault.name} ({trial.level})"


def format_trials(trials: Sequence[Trial]) -> str:
    """A block for each trial: what had to detect the fault, what did and after how long."""
    ordered = sorted(
        trials, key=lambda trial: (not trial.missed, trial.fault.notebook, trial.fault.name, trial.level, trial.fault.device)
    )
    lines = []
    for trial in ordered:
        fault = trial.fault
        where = f"{fault.notebook}, {fault.device}, {trial.level}, {trial.seconds:.0f} s"
        lines.append(f"{format_outcome(trial)}  {format_name(trial)}: {shown(fault.what)} ({where})")
        detected_by = ", ".join(trial.detected_by) or "-"
        expected = ", ".join(trial.expected)
        lines.append(f"          {shown(f'expected     {expected}')}")
        lines.append(f"          {shown(f'detected by  {detected_by}')}")
        if trial.missed:
            lines.append(f"          {shown(trial.missed)}")
    total = shown(f"{_detected(trials)} of {len(trials)} faults detected")
    return "\n".join([*lines, total])


def format_catalogue(faults: Iterable[Fault]) -> str:
    """A line for each fault."""
    return "\n".join(
        f"{fault.name:<36} {fault.notebook:<28} {padded(', '.join(fault.lanes) or shown('not run'), 8)} {shown(fault.what)}"
        for fault in faults
    )


def trials_to_json(trials: Sequence[Trial]) -> dict[str, Any]:
    """All trials as a JSON object."""
    return {"schema": 4, "detected": _detected(trials), "faults": [trial.to_json() for trial in trials]}


def format_controls(controls: Sequence[Control]) -> str:
    """A line for the sections that some faults share, those that prove nothing first; then how many are green."""
    ordered = sorted(controls, key=lambda control: (not control.wrong, control.notebook, control.checks))
    lines = []
    for control in ordered:
        outcome = shown("WRONG") if control.wrong else shown("green")
        where = f"{control.notebook}, {control.device}, {control.level}"
        ran = shown(f"{where}, {control.cells[0]} of {control.cells[1]} cells, {control.seconds:.0f} s")
        lines.append(f"{outcome}  {', '.join(control.checks)} ({ran}): {', '.join(control.faults)}")
        if control.wrong:
            lines.append(f"       {shown(control.wrong)}")
    return "\n".join([*lines, shown(f"{_green(controls)} of {len(controls)} green without a fault")])


def controls_to_json(controls: Sequence[Control]) -> dict[str, Any]:
    """All controls as a JSON object."""
    return {"schema": 2, "green": _green(controls), "controls": [each.to_json() for each in controls]}


def _detected(trials: Sequence[Trial]) -> int:
    return sum(not trial.missed for trial in trials)


def _green(controls: Sequence[Control]) -> int:
    return sum(not control.wrong for control in controls)
