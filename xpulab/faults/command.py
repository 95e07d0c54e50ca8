"""What `xpulab selftest` does: try faults, or run their sections without them, with a line for each as it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console

from xpulab.chapters.shared.fault import Fault
from xpulab.errors import InputError
from xpulab.faults import selftest, table
from xpulab.harness.plan import refuse_other_environments
from xpulab.harness.run import kernel_environment
from xpulab.messages import N_, shown


def run_trials(faults: Sequence[Fault], jobs: int, as_json: bool) -> int:
    """Try the faults, `jobs` at a time, and print what came of it; returns the exit code, 1 when one was missed."""
    refuse_other_environments(selftest.chapters_of(faults))
    progress = Console(stderr=True)
    faults = _possible(faults)
    trials = selftest.count(faults)
    progress.print(shown(f"{len(faults)} faults, {trials} trials, {jobs} at a time"), highlight=False)
    tried = []
    with kernel_environment("cpu") as environment:
        for trial in selftest.trials(faults, jobs, {**environment, **selftest.WITHOUT_MODELS}):
            tried.append(trial)
            outcome = f"{table.format_outcome(trial)}  {table.format_name(trial)}, {trial.seconds:.0f} s"
            progress.print(f"{len(tried):>3}/{trials}  {outcome}", highlight=False, markup=False, soft_wrap=True)
    print(json.dumps(table.trials_to_json(tried), indent=2) if as_json else table.format_trials(tried))
    return 1 if any(trial.missed for trial in tried) else 0


def run_controls(faults: Sequence[Fault], jobs: int, as_json: bool) -> int:
    """Run the sections that the faults are tried in without them; returns the exit code, 1 when one is not green."""
    refuse_other_environments(selftest.chapters_of(faults))
    ran = []
    with kernel_environment("cpu") as environment:
        for control in selftest.controls(_possible(faults), jobs, {**environment, **selftest.WITHOUT_MODELS}):
            ran.append(control)
            print(table.format_controls([control]).splitlines()[0], file=sys.stderr)
    print(json.dumps(table.controls_to_json(ran), indent=2) if as_json else table.format_controls(ran))
    return 1 if any(control.wrong for control in ran) else 0


def _possible(faults: Sequence[Fault]) -> list[Fault]:
    """Those that can be tried on this machine; prints why the others cannot. Raises InputError when none is left."""
    lacked = {fault.name: reason for fault in faults if (reason := selftest.lacked_here(fault))}
    for name, reason in lacked.items():
        print(shown(f"not tried on this machine: {name}: {reason}"), file=sys.stderr)
    if len(lacked) == len(faults):
        raise InputError(N_("none of these faults can be tried on this machine"))
    return [fault for fault in faults if fault.name not in lacked]
