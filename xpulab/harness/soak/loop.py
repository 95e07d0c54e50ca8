"""The rounds of a soak, one after the other, until the time is over or it is interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from rich.console import Console

from xpulab.errors import InputError
from xpulab.harness import run as harness
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan
from xpulab.harness.soak import report
from xpulab.harness.soak.kernels import Kernels
from xpulab.harness.soak.log import LINES, Log
from xpulab.harness.soak.readings import Sample, Sampler, read_memory
from xpulab.harness.soak.rounds import FAILED, INTERRUPTED, PASSED, Round, in_order
from xpulab.harness.soak.selection import selection
from xpulab.harness.soak.summary import Summary
from xpulab.harness.soak.values import Values, red_in, seed_of

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Soak:
    """What is asked for.

    plans: of one round. target: of all rounds; its seed is that of the first one. jobs: notebooks at a time.
    hours: how long, above 0; None until it is interrupted. folder: a new one for the reports. cold: as in harness.run.
    """

    plans: tuple[Plan, ...]
    target: Target
    jobs: int
    hours: float | None
    folder: Path
    cold: bool = False


def run_soak(asked: Soak, console: Console) -> int:
    """Run a soak and say at its end what it found; returns the exit code, see Summary.exit_code.

    Raises InputError when the folder cannot be used, or a file of a report cannot be written (a full disk).
    """
    target = asked.target
    where = f"device {target.device}, {len(asked.plans)} notebooks a round at level {target.level}, {asked.jobs} at a time"
    until = "until it is interrupted" if asked.hours is None else f"for {asked.hours:g} h"
    console.print(f"soak {until}: {where}", highlight=False, soft_wrap=True)
    try:
        summary = soak(asked, console)
    except OSError as error:
        remedy = f"{asked.folder / LINES} has the rounds until then; make room, and start again with another --out"
        raise InputError(f"the soak ended because a report could not be written: {error}; {remedy}") from error
    console.print(report.format_summary(summary), highlight=False, markup=False, soft_wrap=True)
    return summary.exit_code


def soak(asked: Soak, console: Console) -> Summary:
    """Run rounds, a line on the console for each; the reports are written anew after every round.

    An interruption (KeyboardInterrupt) ends the round under way. What its finished notebooks found counts.
    Raises InputError when the folder cannot be used.
    """
    log = Log(asked.folder)
    started = time.monotonic()
    rounds: list[Round] = []
    interrupted = False
    try:
        with Kernels(asked.target.device, asked.cold) as kernels:
            runner = _Runner(asked, log, kernels)
            while has_time(asked.hours, time.monotonic() - started, [each.seconds for each in rounds]):
                executed = runner.run(len(rounds) + 1)
                with _uninterrupted():
                    this = runner.compare(executed)
                    rounds.append(this)
                    _keep(log, _summary(asked, log, rounds, started, interrupted=False), console)
                if this.outcome == INTERRUPTED:
                    interrupted = True
                    break
    except KeyboardInterrupt:
        interrupted = True
    with _uninterrupted(forget=True):
        summary = _summary(asked, log, rounds, started, interrupted)
        log.write(report.files(summary))
    return summary


def has_time(hours: float | None, elapsed: float, seconds: Sequence[float]) -> bool:
    """Whether another round begins: the first one always, later ones when one of median length ends in time."""
    if hours is None or not seconds:
        return True
    return elapsed + median(seconds) <= hours * _SECONDS_PER_HOUR


@dataclass(frozen=True)
class _Executed:
    """A round that was not compared yet. replaced: whether the fork server was. The rest is as in Round."""

    number: int
    seed: int
    began: datetime
    seconds: float
    verdicts: tuple[Verdict, ...]
    interrupted: bool
    samples: tuple[Sample, ...]
    replaced: bool


class _Runner:
    """Runs rounds, and compares each with earlier ones."""

    def __init__(self, asked: Soak, log: Log, kernels: Kernels) -> None:
        self._asked, self._log, self._kernels = asked, log, kernels
        self._values = Values(selection())
        self._noted: set[str] = set()

    def run(self, number: int) -> _Executed:
        """Run one round; an interruption ends it early, and nothing that has finished is lost."""
        asked = self._asked
        seed = seed_of(number, asked.target.seed)
        began, started, servers = datetime.now().astimezone(), time.monotonic(), self._kernels.started
        folder = self._log.prepare(number)
        verdicts: Sequence[Verdict] = ()
        interrupted = False
        sampler = Sampler(asked.target.device)
        try:
            with sampler:
                target, quiet = replace(asked.target, seed=seed), Console(quiet=True)
                outcome = harness.run_in(self._kernels.of_round(), asked.plans, target, asked.jobs, folder, quiet)
                verdicts, interrupted = outcome.result.verdicts, outcome.interrupted
        except KeyboardInterrupt:
            interrupted = True
        replaced = 0 < servers < self._kernels.started
        seconds = time.monotonic() - started
        return _Executed(number, seed, began, seconds, tuple(verdicts), interrupted, sampler.samples, replaced)

    def compare(self, executed: _Executed) -> Round:
        """Compare a round with earlier ones. Of an interrupted one the notebooks that were not ended by that count."""
        number, seed, verdicts = executed.number, executed.seed, executed.verdicts
        if executed.interrupted:
            verdicts = tuple(each for each in verdicts if each.run and not (each.run.stopped or "").startswith(INTERRUPTED))
        repeated, differences = self._values.compare(number, seed, verdicts)
        found = in_order(number, seed, [*differences, *red_in(verdicts)], verdicts, executed.samples)
        notes = [f"{each.name} is skipped: {each.reason}" for each in verdicts if each.outcome == "skipped"]
        if executed.replaced:
            notes.append("the fork server had ended and was started again")
        return Round(
            number=number,
            seed=seed,
            began=executed.began,
            seconds=executed.seconds,
            outcome=INTERRUPTED if executed.interrupted else FAILED if found else PASSED,
            checks=sum(verdict.compared for verdict in verdicts),
            repeated=repeated,
            samples=executed.samples,
            memory=read_memory(self._log.folder),
            found=found,
            notes=tuple(self._new(notes)),
        )

    def _new(self, notes: Sequence[str]) -> Iterator[str]:
        """Those that no earlier round had: what is so in every round is said once."""
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                yield note


def _keep(log: Log, summary: Summary, console: Console) -> None:
    this = summary.rounds[-1]
    log.add(this)
    log.write(report.files(replace(summary, first_bad=log.first_bad)))
    console.print(report.format_round(this), highlight=False, markup=False, soft_wrap=True)


def _summary(asked: Soak, log: Log, rounds: Sequence[Round], started: float, interrupted: bool) -> Summary:
    seconds = time.monotonic() - started
    return Summary(asked.target, asked.plans, tuple(rounds), seconds, asked.hours, interrupted, log.folder, log.first_bad)


@contextmanager
def _uninterrupted(forget: bool = False) -> Iterator[None]:
    """A block that SIGINT and SIGTERM do not break: they raise KeyboardInterrupt after it, unless they are forgotten."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: arrived.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
    if arrived and not forget:
        raise KeyboardInterrupt
