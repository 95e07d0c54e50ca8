"""The rounds of a soak, one after the other, until the time is over or it is interrupted; one fork server starts their kernels.

    soak.jsonl          a line for each round
    soak.json           the summary for programs; summary.txt for people; junit.xml for CI systems
    rounds/0007/        the reports and notebooks of a round

Kept are the first bad round, the first round of each seed (later ones are compared with it), and the last round, so that the
disk does not fill.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from rich.console import Console

from xpulab import warm
from xpulab.errors import InputError
from xpulab.harness import run as harness
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan
from xpulab.harness.run import kernel_environment
from xpulab.harness.written import replace_text
from xpulab.messages import N_, shown
from xpulab.soak import report
from xpulab.soak.report import Summary
from xpulab.soak.rounds import FAILED, INTERRUPTED, PASSED, Round, Sampler, in_order, read_memory, round_to_json
from xpulab.soak.selection import selection
from xpulab.soak.values import Values, red_in, seed_of

LINES = "soak.jsonl"
_SECONDS_PER_HOUR = 3600.0
_ANSWER_SECONDS = 30.0
"""A fork server that has imported everything forks within milliseconds."""


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
    where = N_(f"device {target.device}, {len(asked.plans)} notebooks a round at level {target.level}, {asked.jobs} at a time")
    until = N_("soak until it is interrupted") if asked.hours is None else N_(f"soak for {asked.hours:g} h")
    begun = f"{until}: {where}"
    console.print(shown(begun), highlight=False, soft_wrap=True)
    try:
        summary = soak(asked, console)
    except OSError as error:
        remedy = N_(f"{asked.folder / LINES} has the rounds until then; make room, and start again with another --out")
        raise InputError(N_(f"the soak ended because a report could not be written: {error}; {remedy}")) from error
    console.print(shown(report.format_summary(summary)), highlight=False, markup=False, soft_wrap=True)
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
                    this = runner.compare(*executed)
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


class _Runner:
    """Runs rounds, and compares each with earlier ones."""

    def __init__(self, asked: Soak, log: Log, kernels: Kernels) -> None:
        self._asked, self._log, self._kernels = asked, log, kernels
        self._values = Values(selection())
        self._noted: set[str] = set()

    def run(self, number: int) -> tuple[Round, Sequence[Verdict]]:
        """Run one round, which is not compared yet; an interruption ends it early, and nothing that has finished is lost."""
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
        seconds, memory = time.monotonic() - started, read_memory(self._log.folder)
        notes = (N_("the fork server had ended and was started again"),) if 0 < servers < self._kernels.started else ()
        ended = INTERRUPTED if interrupted else PASSED
        return Round(number, seed, began, seconds, ended, 0, 0, sampler.samples, memory, notes=notes), verdicts

    def compare(self, this: Round, verdicts: Sequence[Verdict]) -> Round:
        """Compare a round with earlier ones. Of an interrupted one the notebooks that were not ended by that count."""
        if this.outcome == INTERRUPTED:
            verdicts = [each for each in verdicts if each.run and not (each.run.stopped or "").startswith(INTERRUPTED)]
        repeated, differences = self._values.compare(this.number, this.seed, verdicts)
        found = in_order(this.number, this.seed, [*differences, *red_in(verdicts)], verdicts, this.samples)
        skipped = [N_(f"{each.name} is skipped: {each.reason}") for each in verdicts if each.outcome == "skipped"]
        return replace(
            this,
            outcome=FAILED if found and this.outcome == PASSED else this.outcome,
            checks=sum(verdict.compared for verdict in verdicts),
            repeated=repeated,
            found=found,
            notes=tuple(self._new([*skipped, *this.notes])),
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
    console.print(shown(report.format_round(this)), highlight=False, markup=False, soft_wrap=True)


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


class Kernels:
    """Gives each round the variables of its kernels; ends the fork server at the end of its block.

    started: how many fork servers there were; 0 where kernels start cold.
    """

    def __init__(self, device: str, cold: bool) -> None:
        self.started = 0
        self._device, self._cold = device, cold
        self._server = ExitStack()
        self._environment: Mapping[str, str] | None = None

    @contextmanager
    def of_round(self) -> Iterator[Mapping[str, str]]:
        """The variables, in the form of kernel_environment; raises what that raises."""
        if self._environment is None or not _answers(self._environment):
            self._server.close()
            self._environment = self._server.enter_context(kernel_environment(self._device, self._cold))
            self.started += warm.ADDRESS in self._environment
        yield self._environment

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()


def _answers(environment: Mapping[str, str]) -> bool:
    """Whether kernels can be started with these variables: cold ones always can."""
    if warm.ADDRESS not in environment:
        return True
    try:
        return warm.answers(environment[warm.ADDRESS], _ANSWER_SECONDS)
    except (warm.ForkServerGone, TimeoutError):
        return False


class Log:
    """The folder of a soak."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError when the folder holds another run or soak, or cannot be written."""
        harness.prepare(folder)
        (folder / "notebooks").rmdir()  # each round has its own
        (folder / LINES).touch()
        self.folder = folder
        self.first_bad: int | None = None
        self._seeds: set[int] = set()
        self._last: int | None = None

    def folder_of(self, number: int) -> Path:
        """Where the reports of a round are."""
        return self.folder / "rounds" / f"{number:04d}"

    def prepare(self, number: int) -> Path:
        """Make the folder of a round."""
        harness.prepare(self.folder_of(number))
        return self.folder_of(number)

    def add(self, this: Round) -> None:
        """Write the line of a round to the disk, and remove the reports of the one before unless they are to be kept."""
        with (self.folder / LINES).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(round_to_json(this), allow_nan=False) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        if self._last is not None:
            shutil.rmtree(self.folder_of(self._last), ignore_errors=True)
        self._last = this.number
        if self.first_bad is None and this.found:
            self.first_bad, self._last = this.number, None
        if this.outcome == PASSED and this.seed not in self._seeds:
            self._seeds.add(this.seed)
            self._last = None

    def write(self, reports: Mapping[str, str]) -> None:
        """Write files beside the lines, each whole or not at all."""
        for name, text in reports.items():
            replace_text(self.folder / name, text, errors="backslashreplace")
