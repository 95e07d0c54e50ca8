"""What `xpulab selftest` does and prints: a line for each trial as it ends, then a block for each, missed faults first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from xpulab.chapters.shared.fault import Fault
from xpulab.errors import InputError
from xpulab.faults import selftest
from xpulab.faults.selftest import Trial
from xpulab.harness.fork_server import Started, kernel_environment
from xpulab.harness.plan import refuse_other_environments
from xpulab.messages import N_, padded, shown


def run_trials(faults: Sequence[Fault], jobs: int, as_json: bool, cold: Started | None = None) -> int:
    """Try the faults, `jobs` at a time, and print what came of it; returns the exit code, 1 when one was missed.

    cold: what kernels start from where simulated cards stand for a card; None: they are forked from a server of their own.
    """
    refuse_other_environments(selftest.chapters_of(faults))
    cases, tried = selftest.cases_of(faults), list[Trial]()
    if not cases:
        raise InputError(N_("none of these faults can be tried on this machine"))
    counted = shown(N_("{faults} faults, {trials} trials, {jobs} at a time", faults=len(faults), trials=len(cases), jobs=jobs))
    print(counted, file=sys.stderr)
    with kernel_environment("cpu", cold) as environment:
        for trial in selftest.trials(cases, jobs, {**environment, **selftest.WITHOUT_MODELS}):
            tried.append(trial)
            report_trial(trial, len(tried), len(cases), sys.stderr)
    print(json.dumps(to_json(tried), indent=2) if as_json else format_trials(tried))
    return 1 if any(trial.missed for trial in tried) else 0


def report_trial(trial: Trial, number: int, of: int, file: TextIO | None = None) -> None:
    """Print the line of a trial that has ended. file: where, standard output without it."""
    print(f"{number:>3}/{of}  {_outcome(trial)}  {_name(trial)}, {trial.seconds:.0f} s", file=file)


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
        where = f"{trial.fault.notebook}, {trial.fault.device}, {trial.level}, {trial.seconds:.0f} s"
        lines.append(f"{_outcome(trial)}  {_name(trial)}: {shown(trial.fault.what)} ({where})")
        lines.append(f"          {shown(N_('expected     {expected}', expected=', '.join(trial.expected)))}")
        lines.append(f"          {shown(N_('detected by  {detected_by}', detected_by=', '.join(trial.detected_by) or '-'))}")
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
