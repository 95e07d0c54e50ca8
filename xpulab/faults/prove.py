"""The proof after a run: a sample of faults, injected into the same notebooks on the same node, which must detect each.

The run itself is the control: a fault is tried only when the checks that must detect it passed in the run. On simulated cards
the faults of that lane are used, on the CPU those of the CPU. On a GPU or an XPU it is those that are detected on the CPU and
on simulated cards alike: what they patch does not depend on the device. **That was never run on a card.**
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from xpulab.chapters.shared.fault import Fault
from xpulab.devices import SIMULATED
from xpulab.faults import CATALOGUE, selftest
from xpulab.faults.selftest import Trial
from xpulab.harness import report
from xpulab.harness.execute import Target
from xpulab.harness.report.result import Result
from xpulab.harness.run import kernel_environment
from xpulab.messages import N_, shown
from xpulab.records.origin import node_name
from xpulab.records.proof import InjectedFault, Proof

SAMPLE = 6
"""How many faults are injected unless more are asked for."""

_SMOKE, _QUICK = "smoke", "quick"
_PROVED_ON = {"cpu": "cpu", SIMULATED: SIMULATED, "gpu": SIMULATED, "xpu": SIMULATED}
"""By device of a run the lane on which the self-test detects a fault that is used there."""


def candidates(result: Result, catalogue: Sequence[Fault] = CATALOGUE) -> list[Fault]:
    """The faults that fit what ran: each with the run's device, and with checks that all passed in the run."""
    device, level = result.target.device, _level(result.target)
    passed = {record.name for verdict in result.verdicts for record in verdict.records if record.outcome == "passed"}
    ran = {verdict.name for verdict in result.verdicts}
    return [
        replace(fault, lanes=(device,))
        for fault in catalogue
        if _PROVED_ON[device] in fault.lanes
        and (device == SIMULATED or not fault.sim_faults)
        and fault.notebook in ran
        and not selftest.lacked_here(fault)
        and (level == _SMOKE or level == fault.level)
        and (checks := _checks(fault, level))
        and passed.issuperset(checks)
    ]


def sample(faults: Sequence[Fault], number: int, seed: int) -> list[Fault]:
    """So many of the faults, those of different notebooks first; the same for a seed."""
    rest = random.Random(seed).sample(list(faults), len(faults))
    chosen: list[Fault] = []
    tried: Counter[str] = Counter()
    while rest and len(chosen) < number:
        best = min(rest, key=lambda fault: tried[fault.notebook])
        rest.remove(best)
        chosen.append(best)
        tried[best.notebook] += 1
    return chosen


def prove(result: Result, number: int, jobs: int, console: Console, catalogue: Sequence[Fault] = CATALOGUE) -> Result:
    """Inject so many faults, `jobs` at a time, with a line for each; the result with the proof, whose reports are written.

    The choice follows the run's seed.
    """
    target, level = result.target, _level(result.target)
    fitting = candidates(result, catalogue)
    chosen = sample(fitting, number, target.seed)
    started, tried = time.monotonic(), []
    if chosen:
        console.print(
            shown(N_("injecting {chosen} of {fitting} faults that fit this run", chosen=len(chosen), fitting=len(fitting))),
            highlight=False,
        )
        with kernel_environment(target.device) as environment:
            variables = {**environment, **selftest.WITHOUT_MODELS}
            for trial in selftest.trials_at(chosen, level, _cards(target), jobs, variables):
                tried.append(_of(trial, level))
                outcome = shown("MISSED") if trial.missed else shown("detected")
                line = f"{len(tried):>3}/{len(chosen)}  {outcome}  {trial.fault.name}, {trial.seconds:.0f} s"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    seconds = round(time.monotonic() - started, 1)
    proof = Proof(node_name(), target.device, target.cards, level, target.seed, len(fitting), tuple(tried), seconds)
    proved = replace(result, proof=proof)
    report.write(proved)
    return proved


def _level(target: Target) -> str:
    """That of the trials: the catalogue is tried at smoke and at quick."""
    return _SMOKE if target.level == _SMOKE else _QUICK


def _cards(target: Target) -> int:
    """The run's; ranks on a CPU are processes, and the self-test has two."""
    return max(selftest.CARDS, target.cards) if target.device == "cpu" else target.cards


def _checks(fault: Fault, level: str) -> tuple[str, ...]:
    return fault.smoke if level == _SMOKE else fault.detected_by


def _of(trial: Trial, level: str) -> InjectedFault:
    fault = trial.fault
    expected = _checks(fault, level)
    return InjectedFault(fault.name, fault.what, fault.notebook, expected, trial.detected_by, trial.missed, trial.seconds)
