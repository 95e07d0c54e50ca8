"""The proof after a run: a sample of faults, injected into the same notebooks on the same node, which must detect each.

The run itself is the control: a fault is tried only when the checks that must detect it passed in the run. On simulated cards
the faults of that lane are used, on the CPU those of the CPU. On a GPU or an XPU it is those that are detected on the CPU and
on simulated cards alike: what they patch does not depend on the device. **That was never run on a card.**
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from xpulab import files
from xpulab.chapters.shared.fault import Fault
from xpulab.devices import SIMULATED
from xpulab.faults import CATALOGUE, selftest
from xpulab.faults.command import format_trials, report_trial
from xpulab.faults.selftest import Trial
from xpulab.harness.fork_server import kernel_environment
from xpulab.harness.report.result import Result
from xpulab.messages import N_, shown

FILE = "prove.json"
"""In the folder of the run; its schema is data/schema/prove.schema.json."""

_SMOKE, _QUICK = "smoke", "quick"
_PROVED_ON = {"cpu": "cpu", SIMULATED: SIMULATED, "gpu": SIMULATED, "xpu": SIMULATED}
"""By device of a run the lane on which the self-test detects a fault that is used there."""


def candidates(result: Result, catalogue: Sequence[Fault] = CATALOGUE) -> list[Fault]:
    """The faults that fit what ran: each with the run's device, and with checks that all passed in the run."""
    device, level = result.options.device, _level(result)
    passed = {record.name for verdict in result.verdicts for record in verdict.records if record.outcome == "passed"}
    ran = {verdict.name for verdict in result.verdicts}
    return [
        replace(fault, lanes=(device,))
        for fault in catalogue
        if _PROVED_ON[device] in fault.lanes
        and (device == SIMULATED or not fault.sim_faults)
        and fault.notebook in ran
        and (level == _SMOKE or level == fault.level)
        and (checks := selftest.expected_of(fault, level))
        and passed.issuperset(checks)
    ]


def sample(faults: Sequence[Fault], number: int, seed: int) -> list[Fault]:
    """So many of the faults, those of different notebooks first; the same for a seed."""
    shuffled = random.Random(seed).sample(list(faults), len(faults))
    turns: dict[str, Iterator[int]] = defaultdict(itertools.count)
    return sorted(shuffled, key=lambda fault: next(turns[fault.notebook]))[:number]  # the first of each, then the second ones


def prove(result: Result, number: int, jobs: int, catalogue: Sequence[Fault] = CATALOGUE) -> bool:
    """Inject so many faults, `jobs` at a time, with a line for each, and write prove.json into the folder of the run.

    The choice follows the run's seed. Returns whether a fault was injected, and each was detected.
    """
    options, level, started = result.options, _level(result), time.monotonic()
    fitting = candidates(result, catalogue)
    chosen, tried = sample(fitting, number, options.seed), list[Trial]()
    if chosen:
        cards = max(selftest.CARDS, options.cards) if options.device == "cpu" else options.cards  # ranks there are processes
        with kernel_environment(options.device) as environment:
            variables = {**environment, **selftest.WITHOUT_MODELS}
            for trial in selftest.trials([(fault, level) for fault in chosen], jobs, variables, cards):
                tried.append(trial)
                report_trial(trial, len(tried), len(chosen))
    stored = to_json(result, tried, len(fitting), round(time.monotonic() - started, 1))
    files.replace_text(result.folder / FILE, json.dumps(stored, indent=2) + "\n")
    nothing = N_("no fault of the catalogue fits the checks that are green here, so nothing was proved")
    print(format_trials(tried) if tried else shown(nothing))
    return bool(stored["green"])


def to_json(result: Result, tried: Sequence[Trial], candidates: int, seconds: float) -> dict[str, Any]:
    """What prove.json holds. candidates: how many faults of the catalogue fit the run. seconds: how long all took."""
    options = result.options
    return {
        "schema": 2,
        "green": bool(tried) and not any(trial.missed for trial in tried),
        "node": result.node,
        "device": options.device,
        "cards": options.cards,
        "level": _level(result),
        "seed": options.seed,
        "candidates": candidates,
        "faults": [trial.to_json() for trial in tried],
        "seconds": seconds,
    }


def _level(result: Result) -> str:
    """That of the trials: the catalogue is tried at smoke and at quick."""
    return _SMOKE if result.options.level == _SMOKE else _QUICK
