"""Baselines for this machine: the notebooks that measure are run several times, and their measurements are summarized.

All is read from the executed notebooks, as a verdict is. Nothing is kept unless every run was green.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from unittest import mock

from rich.console import Console

from xpulab.errors import InputError
from xpulab.harness import run as harness
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan
from xpulab.harness.report.result import Result
from xpulab.messages import N_
from xpulab.records import baselines
from xpulab.records.baselines import Baseline, Entry
from xpulab.records.origin import commit
from xpulab.records.record import Measurement

METHOD = "baseline"
"""The method of `check` whose measurements are kept."""

Runs = Sequence[Sequence[Verdict]]
"""For each run the verdicts on its notebooks."""


class NotGreen(Exception):
    """A run was red, so nothing is kept. result: of that run, whose reports are in its folder."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"a run was not green; its report is {result.folder / 'index.html'}")
        self.result = result


def measuring(plans: Sequence[Plan]) -> list[Plan]:
    """The plans of those notebooks that have a check against baselines."""
    return [plan for plan in plans if any(check.method == METHOD for check in plan.checks)]


def measure(plans: Sequence[Plan], options: RunOptions, runs: int, folder: Path, console: Console) -> Baseline:
    """Run the notebooks so many times, one at a time, and summarize their measurements; reports go into folders of `folder`.

    Raises NotGreen, and KeyboardInterrupt on Ctrl-C.
    """
    verdicts = []
    # the kernels find no baselines: the old ones do not influence the new ones
    with mock.patch.dict(os.environ, {baselines.FOLDER: str(folder / "none")}):
        for number in range(1, runs + 1):
            of_this = folder / f"run-{number}"
            harness.prepare(of_this)
            outcome = harness.run(plans, options, 1, of_this, console)
            if outcome.interrupted:
                raise KeyboardInterrupt
            if why := outcome.result.no_verdict:
                raise InputError(N_("no verdict: {cause}", cause=why))
            if not outcome.result.is_green:
                raise NotGreen(outcome.result)
            verdicts.append(outcome.result.verdicts)
    return summarize(verdicts, options.level)


def summarize(runs: Runs, level: str) -> Baseline:
    """One baseline from what all runs measured.

    Raises InputError when they are not of one machine, or when one did not measure what the others did.
    """
    contexts = [verdict.run_context for run in runs for verdict in run if verdict.run_context]
    if not contexts:
        raise InputError("no notebook recorded where it ran, so nothing can be kept as a baseline")
    run_context = contexts[0]
    if any(
        (each.device, each.machine, each.versions) != (run_context.device, run_context.machine, run_context.versions)
        for each in contexts
    ):
        raise InputError("the runs are not of one machine with the same versions, so they make no baseline")
    entries = tuple(_entries(runs, run_context.device))
    if not entries:
        raise InputError("nothing was measured: a card, or a notebook that has a check against baselines, is missing")
    return Baseline(
        device=run_context.device,
        hardware=baselines.hardware(run_context),
        wheel=baselines.wheel(run_context),
        level=level,
        machine={name: value for name, value in run_context.machine.items() if name != "driver"},
        driver=str(run_context.machine.get("driver", "none")),
        versions=run_context.versions,
        commit=commit(),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        runs=len(runs),
        entries=entries,
    )


def _entries(runs: Runs, device: str) -> Iterator[Entry]:
    measured = [dict(_measured(run)) for run in runs]
    cases = dict.fromkeys(case for run in measured for case in run)
    for check, case in cases:
        of_each_run = [run[check, case] for run in measured if (check, case) in run]
        if len(of_each_run) < len(runs) or len({(len(each.values), str(each.conditions)) for each in of_each_run}) != 1:
            raise InputError(f"{check}, {case}: not every run measured it in the same way, so it makes no baseline")
        yield baselines.summarise(check, of_each_run, device)


def _measured(run: Sequence[Verdict]) -> Iterator[tuple[tuple[str, str], Measurement]]:
    for verdict in run:
        for record in verdict.records:
            for measurement in record.measurements:
                yield (record.name, measurement.case), measurement
