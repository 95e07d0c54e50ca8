"""What `xpulab selftest` does and prints: a line for each trial as it ends, then a block for each, missed faults first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from xpulab.chapters.shared.fault import Fault
from xpulab.errors import InputError
from xpulab.faults import selftest
from xpulab.faults.selftest import Trial
from xpulab.harness.plan import refuse_other_environments
from xpulab.harness.run import kernel_environment
from xpulab.messages import N_, padded, shown


def run_trials(faults: Sequence[Fault], jobs: int, as_json: bool) -> int:
    """Try the faults, `jobs` at a time, and print what came of it; returns the exit code, 1 when one was missed."""
    refuse_other_environments(selftest.chapters_of(faults))
    progress = Console(stderr=True)
    faults = _possible(faults)
    trials = selftest.count(faults)
    progress.print(
        shown(N_("{faults} faults, {trials} trials, {jobs} at a time", faults=len(faults), trials=trials, jobs=jobs)),
        highlight=False,
    )
    tried = []
    with kernel_environment("cpu") as environment:
        for trial in selftest.trials(faults, jobs, {**environment, **selftest.WITHOUT_MODELS}):
            tried.append(trial)
            outcome = f"{_outcome(trial)}  {_name(trial)}, {trial.seconds:.0f} s"
            progress.print(f"{len(tried):>3}/{trials}  {outcome}", highlight=False, markup=False, soft_wrap=True)
    print(json.dumps(to_json(tried), indent=2) if as_json else format_trials(tried))
    return 1 if any(trial.missed for trial in tried) else 0


def run_controls(faults: Sequence[Fault], jobs: int) -> int:
    """Run the sections that the faults are tried in without them; returns the exit code, 1 when one is not green."""
    refuse_other_environments(selftest.chapters_of(faults))
    ran, wrong = 0, 0
    with kernel_environment("cpu") as environment:
        for control in selftest.controls(_possible(faults), jobs, {**environment, **selftest.WITHOUT_MODELS}):
            ran, wrong = ran + 1, wrong + bool(control.wrong)
            where = shown(
                N_(
                    "{notebook}, {device}, {level}, {seconds} s",
                    notebook=control.notebook,
                    device=control.device,
                    level=control.level,
                    seconds=f"{control.seconds:.0f}",
                )
            )
            outcome = shown("WRONG") if control.wrong else shown("green")
            print(f"{outcome}  {', '.join(control.checks)} ({where})", flush=True)
            if control.wrong:
                print(f"       {shown(control.wrong)}", flush=True)
    print(shown(N_("{ran} of {ran2} green without a fault", ran=ran - wrong, ran2=ran)))
    return 1 if wrong else 0


def _possible(faults: Sequence[Fault]) -> list[Fault]:
    """Those that can be tried on this machine; prints why the others cannot. Raises InputError when none is left."""
    lacked = {fault.name: reason for fault in faults if (reason := selftest.lacked_here(fault))}
    for name, reason in lacked.items():
        print(shown(N_("not tried on this machine: {name}: {reason}", name=name, reason=reason)), file=sys.stderr)
    if len(lacked) == len(faults):
        raise InputError(N_("none of these faults can be tried on this machine"))
    return [fault for fault in faults if fault.name not in lacked]


def _outcome(trial: Trial) -> str:
    """One word in eight columns, in the chosen language."""
    return padded(shown("MISSED") if trial.missed else shown("detected"), 8)


def _name(trial: Trial) -> str:
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
        lines.append(f"{_outcome(trial)}  {_name(trial)}: {shown(fault.what)} ({where})")
        detected_by = ", ".join(trial.detected_by) or "-"
        expected = ", ".join(trial.expected)
        lines.append(f"          {shown(N_('expected     {expected}', expected=expected))}")
        lines.append(f"          {shown(N_('detected by  {detected_by}', detected_by=detected_by))}")
        if trial.missed:
            lines.append(f"          {shown(trial.missed)}")
    total = shown(N_("{trials} of {trials2} faults detected", trials=_detected(trials), trials2=len(trials)))
    return "\n".join([*lines, total])


def format_catalogue(faults: Iterable[Fault]) -> str:
    """A line for each fault."""
    return "\n".join(
        f"{fault.name:<36} {fault.notebook:<28} {padded(', '.join(fault.lanes) or shown('not run'), 8)} {shown(fault.what)}"
        for fault in faults
    )


def to_json(trials: Sequence[Trial]) -> dict[str, Any]:
    """All trials as a JSON object."""
    return {"schema": 4, "detected": _detected(trials), "faults": [trial.to_json() for trial in trials]}


def _detected(trials: Sequence[Trial]) -> int:
    return sum(not trial.missed for trial in trials)
