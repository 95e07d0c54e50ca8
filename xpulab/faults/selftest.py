"""The proof that the suite detects faults: each is injected into a notebook of its own, which must turn red for that reason.

Of the notebook run the sections of the checks that must detect the fault, with all that these need, and no more; a notebook
is ended as soon as all of these checks are red. `xpulab run --check NAME` runs the same sections without a fault.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from xpulab import files
from xpulab.chapters.shared.fault import Fault
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.faults import CATALOGUE, inject
from xpulab.harness.chapter import Chapter, read_chapter
from xpulab.harness.execute import Execution, RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import Plan, plan_of, plan_of_checks
from xpulab.messages import N_
from xpulab.records import environments
from xpulab.records.record import Record, record_in, worse
from xpulab.warm import RUN_FOLDER

CARDS = 2
"""What each notebook gets, unless it needs more."""

WITHOUT_MODELS = {"XPULAB_MODELS": os.devnull}
"""Variables with which chapter 01 uses its stand-in: a trial is short, and the same on every machine."""

_RED = frozenset({"failed", "broken"})

Case = tuple[Fault, str]
"""A fault, tried on the lane that its `device` names, and the level: its own, or "smoke"."""


@dataclass(frozen=True)
class Trial:
    """The result of one fault at one level.

    fault: its `device` is the lane of this trial.
    level: the fault's, or "smoke", where the whole notebook runs at that level and the fault's smoke checks must be red.
    detected_by: the checks that turned red, in the order in which they did.
    missed: why the fault counts as missed; None when it was detected.
    seconds: from the kernel's start until all that had to be red was red, or until the notebook's end.
    """

    fault: Fault
    level: str
    detected_by: tuple[str, ...]
    missed: str | None
    seconds: float

    @property
    def expected(self) -> tuple[str, ...]:
        """The checks that had to be red."""
        return expected_of(self.fault, self.level)

    def to_json(self) -> dict[str, Any]:
        """The trial as a JSON object, with the fault's name in place of the fault."""
        fault = self.fault
        return {
            "fault": fault.name,
            "what": fault.what,
            "notebook": fault.notebook,
            "device": fault.device,
            "level": self.level,
            "expected": list(self.expected),
            "detected_by": list(self.detected_by),
            "missed": self.missed,
            "seconds": self.seconds,
        }


def faults_named(names: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of these names; when there are none, all of the chapters that run in this environment.

    Raises InputError for a name that no fault has.
    """
    known = {fault.name: fault for fault in CATALOGUE}
    for name in names:
        if name not in known:
            raise InputError(N_("no fault {name}; `xpulab selftest --list` shows those of this environment", name=repr(name)))
    if names:
        return tuple(known[name] for name in names)
    here = environments.present()
    return tuple(fault for fault in CATALOGUE if chapter_of(fault).environment == here)


def on_simulated_cards(faults: Sequence[Fault], are_chosen: bool) -> tuple[Fault, ...]:
    """The faults that can be tried, each on that lane; unless they were chosen, those of that lane and of level smoke."""
    chapters = set(files.chapters().values())
    of_lane = (each for each in faults if each.notebook in chapters and (each.smoke or SIMULATED in each.lanes))
    kept = (fault for fault in (faults if are_chosen else of_lane) if fault.lanes)
    return tuple(replace(fault, lanes=(SIMULATED,)) for fault in kept)


def expected_of(fault: Fault, level: str) -> tuple[str, ...]:
    """The checks that must detect a fault at this level."""
    return fault.smoke if level == "smoke" else fault.detected_by


def cases_of(faults: Iterable[Fault]) -> list[Case]:
    """All trials of these faults: each on all of its lanes, and at level smoke where it must be detected there too."""
    cases: list[Case] = []
    for fault in faults:
        cases += [(replace(fault, lanes=(lane,)), fault.level) for lane in fault.lanes]
        cases += [(fault, "smoke")] if fault.smoke else []
    return cases


def trials(cases: Iterable[Case], jobs: int, environment: Mapping[str, str], cards: int = CARDS) -> Iterator[Trial]:
    """Try the faults, `jobs` at a time, those that take longest first; yields each trial as it ends.

    environment: the variables of the kernels, as harness.fork_server.kernel_environment gives them.
    cards: what each notebook gets, unless it needs more.
    """
    longest_first = sorted(cases, key=lambda case: _plan(*case).expected_seconds, reverse=True)
    running: list[Execution] = []
    with ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(_try, *case, cards, environment, running) for case in longest_first]
        try:
            for done in as_completed(started):
                yield done.result()
        finally:
            for future in started:
                future.cancel()
            for execution in list(running):
                execution.stop()


def chapter_of(fault: Fault) -> Chapter:
    """The notebook that must detect a fault."""
    return _chapter(files.NOTEBOOKS / f"{fault.notebook}.ipynb")


def chapters_of(faults: Iterable[Fault]) -> list[Chapter]:
    """The notebooks that must detect faults, each once."""
    return list({fault.notebook: chapter_of(fault) for fault in faults}.values())


def _plan(fault: Fault, level: str) -> Plan:
    """All of the notebook at level smoke, else the sections of the checks that must detect the fault."""
    chapter = chapter_of(fault)
    return plan_of(chapter, level) if level == "smoke" else plan_of_checks(chapter, level, fault.detected_by)


def _try(fault: Fault, level: str, cards: int, environment: Mapping[str, str], running: list[Execution]) -> Trial:
    """Run the cells of the plan with the fault, until all checks that must detect it are red."""
    seen: dict[str, Record] = {}

    def on_end_of(cell: NotebookNode) -> bool:
        for output in cell.get("outputs", []):
            if record := record_in(output.get("metadata", {})):
                seen[record.name] = worse(seen[record.name], record) if record.name in seen else record
        return set(_red(seen)) >= set(expected_of(fault, level))

    plan, within = _plan(fault, level), environment.get(RUN_FOLDER)
    with tempfile.TemporaryDirectory(prefix="xpulab-fault-", dir=within, ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        options = RunOptions(fault.device, level, max(cards, plan.cards))
        variables = {**environment, **inject.prepare(fault, folder), "OMP_NUM_THREADS": "1"}
        execution = Execution(options, folder, variables, on_end_of)
        running.append(execution)
        started = time.monotonic()
        executed = [path for _, path in execution.run([plan], 1)]
        seconds = round(time.monotonic() - started, 1)
        verdict = judge(plan, executed[0]) if executed else None
        reasons = verdict.reasons if verdict else ("it was interrupted",)
        failure = inject.why_not_injected(folder)
    red, missed = _red(seen), None
    if failure:
        missed = N_("it could not be injected: {failure}", failure=failure)
    elif unseen := sorted(set(expected_of(fault, level)) - set(red)):
        facts = {"unseen": ", ".join(unseen), "reasons": " ".join(reasons) or "the notebook is green"}
        missed = N_("not detected by {unseen}; {reasons}", **facts)
        if verdict and verdict.run and verdict.run.lacking:
            raise InputError(missed)
    return Trial(fault, level, red, missed, seconds)


@lru_cache(maxsize=64)
def _chapter(path: Path) -> Chapter:
    """A notebook, read once for all its faults."""
    return read_chapter(path)


def _red(seen: Mapping[str, Record]) -> tuple[str, ...]:
    return tuple(name for name, record in seen.items() if record.outcome in _RED)
