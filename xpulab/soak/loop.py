"""The rounds of a soak, one after the other, until the time is over or it is interrupted.

    soak.jsonl        a line for each round
    soak.json         what the soak found, written anew after each round
    rounds/0007/      the reports and notebooks of a round, as `xpulab run` writes them
    search/           what `xpulab search` found between the rounds

Kept are the reports of the first bad round and of the last one, so that the disk does not fill.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console

from xpulab.doctor.system import boot_id
from xpulab.errors import InputError
from xpulab.files import replace_text
from xpulab.harness import run as harness
from xpulab.harness.execute import INTERRUPTED, RunOptions
from xpulab.harness.fork_server import Started
from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan
from xpulab.harness.report.result import SCOPE, digest_of_check
from xpulab.messages import N_, shown
from xpulab.records.origin import date_of_now, node_name
from xpulab.records.record import RED
from xpulab.search.loop import Search, format_found, search
from xpulab.soak.selection import varies

LINES, SUMMARY = "soak.jsonl", "soak.json"

SEARCH = "search"
"""What stands for `xpulab search` beside notebooks and checks, and the folder of what it found."""

SHARE, LEAST_SECONDS = 0.25, 10.0
"""Of a round's time the search after it takes so much, at least so many seconds: its process needs some to start."""

SEEDS = 8
"""How many seeds a soak uses, in turns. With seeds 0 to 7 all sections were green on the CPU."""

_SECONDS_PER_HOUR = 3600.0
_MIB = 1 << 20


@dataclass(frozen=True)
class Soak:
    """What is asked for.

    plans: of one round. options: of all rounds; its seed is that of the first one. jobs: notebooks at a time.
    hours: how long, above 0; None until it is interrupted. folder: a new one for the reports. searches: whether random cases
    of operators are tried between the rounds.
    """

    plans: tuple[Plan, ...]
    options: RunOptions
    jobs: int
    hours: float | None
    folder: Path
    searches: bool


@dataclass(frozen=True)
class Problem:
    """Something that a round found. round, seed: of it. notebook: or SEARCH. check: its name, or "". reason: one sentence."""

    round: int
    seed: int
    notebook: str
    check: str
    reason: str

    def __str__(self) -> str:
        facts = {
            "round": self.round,
            "seed": self.seed,
            "where": f"{self.notebook} {self.check}".strip(),
            "reason": self.reason,
        }
        return N_("round {round} (seed {seed}): {where}: {reason}", **facts)


@dataclass(frozen=True)
class Round:
    """One round. began: local time. seconds: how long it took, with the search. compared: checks that compared something.

    repeated: checks whose values an earlier round with the same seed had too. problems: what it found.
    memory_mib: memory of the machine in use at its end, in MiB: growth is a leak. searched: cases of the search.
    """

    number: int
    seed: int
    began: str
    seconds: float
    compared: int
    repeated: int
    problems: tuple[Problem, ...]
    memory_mib: int
    searched: int = 0


def seed_of(number: int, first: int) -> int:
    """The seed of a round, counted from 1: the first seed in every second round, in the others the SEEDS in turns.

    0 0 1 0 2 0 3 0 ...: what has changed for good differs from round 1 in the next even round, and no later.
    """
    return first if number % 2 == 0 else first + (number - 1) // 2 % SEEDS


def has_time(hours: float | None, elapsed: float, seconds: Sequence[float]) -> bool:
    """Whether another round begins: the first one always, later ones when one of median length ends in time."""
    return hours is None or not seconds or elapsed + median(seconds) <= hours * _SECONDS_PER_HOUR


def soak(asked: Soak, console: Console, server: Started | None = None) -> int:
    """Run rounds, a line on the console for each; returns the exit code.

    It is 1 when something was red or did not repeat, else 130 when it was interrupted, else 0, or 2 when no value was compared
    with that of an earlier round. server: the fork server that starts the kernels.
    Raises InputError when the folder holds another run, or cannot be written, and when what failed around a round, as its disk,
    ended the soak before anything was red.
    """
    harness.prepare(asked.folder, LINES, SUMMARY, "rounds")
    (asked.folder / "notebooks").rmdir()  # each round has its own
    started, rounds, interrupted = time.monotonic(), list[Round](), False
    first: dict[tuple[int, str], tuple[int, str]] = {}  # by seed and check the round and the digest of its values
    try:
        while not interrupted and has_time(asked.hours, time.monotonic() - started, [each.seconds for each in rounds]):
            this, interrupted = _run_round(asked, len(rounds) + 1, first, server)
            if asked.searches and not interrupted:
                this, interrupted = _search(asked, this)
            rounds.append(this)
            _keep(asked, rounds, time.monotonic() - started)
            console.print(shown(format_round(this)), highlight=False, markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        interrupted = True
    except (InputError, OSError) as error:
        if not any(each.problems for each in rounds):
            raise
        console.print(shown(str(error)), highlight=False, markup=False, soft_wrap=True)
    text = format_summary(asked, rounds, time.monotonic() - started)
    console.print(shown(text), highlight=False, markup=False, soft_wrap=True)
    if any(each.problems for each in rounds):
        return 1
    if interrupted:
        return 130
    return 0 if any(each.repeated for each in rounds) else 2


def _run_round(
    asked: Soak, number: int, first: dict[tuple[int, str], tuple[int, str]], server: Started | None
) -> tuple[Round, bool]:
    """Run one round and compare it with earlier ones; whether it was interrupted. Of that one only what had ended counts."""
    seed, folder, began = seed_of(number, asked.options.seed), folder_of(asked, number), datetime.now().astimezone()
    harness.prepare(folder)
    options = replace(asked.options, seed=seed)
    outcome = harness.run(asked.plans, options, asked.jobs, folder, Console(quiet=True), server=server)
    if why := outcome.result.no_verdict:
        raise InputError(N_("no verdict: {cause}", cause=why))
    ended = [each for each in outcome.result.verdicts if each.run and not (each.run.stopped or "").startswith(INTERRUPTED)]
    judged = ended if outcome.interrupted else outcome.result.verdicts
    problems = [Problem(number, seed, *red) for verdict in judged for red in _red_in(verdict)]
    repeated = 0
    for notebook, check, digest in (values for verdict in judged for values in _values_of(verdict)):
        before, earlier = first.setdefault((seed, check), (number, digest))
        repeated += before != number
        if digest != earlier:
            reason = N_("its values differ from those of round {before} with the same seed", before=before)
            problems.append(Problem(number, seed, notebook, check, reason))
    compared, seconds = sum(verdict.compared for verdict in judged), outcome.result.seconds
    when, memory_mib = began.isoformat(timespec="seconds"), psutil.virtual_memory().used // _MIB
    return Round(number, seed, when, seconds, compared, repeated, tuple(problems), memory_mib), outcome.interrupted


def _search(asked: Soak, this: Round) -> tuple[Round, bool]:
    """Search for a while after the round: what is wrong is a problem of it; whether it was interrupted."""
    seconds, began, interrupted = max(LEAST_SECONDS, SHARE * this.seconds), time.monotonic(), False
    searched = Search(asked.options.device, "*", secrets.randbelow(1 << 31), seconds, asked.folder / SEARCH)
    try:
        search(searched, lambda text: None)
    except KeyboardInterrupt:
        interrupted = True
    problems = [Problem(this.number, this.seed, SEARCH, "", format_found(each)) for each in searched.found]
    taken, cases = time.monotonic() - began, searched.outcomes.total()
    return replace(this, seconds=this.seconds + taken, problems=(*this.problems, *problems), searched=cases), interrupted


def _red_in(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """What is red: notebook, check and reason of each check that failed or is broken; else why the notebook is red."""
    red = [record for record in verdict.records if record.outcome in RED - {"missing"}]
    for record in red:
        facts = {"outcome": record.outcome, "measured": record.measured, "expected": record.expected or "-"}
        found = N_("{outcome}, measured {measured}, expected {expected}", **facts)
        yield verdict.name, record.name, N_("{found}; {reason}", found=found, reason=record.reason)
    if verdict.outcome in ("failed", "missing") and not red:
        yield verdict.name, "", verdict.reason or verdict.outcome


def _values_of(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """Notebook, name and digest of each check whose values must repeat; one that is skipped has its outcome as value."""
    for record in verdict.records:
        digest = "skipped" if record.outcome == "skipped" else digest_of_check(record)
        if digest and not varies(record.name):
            yield verdict.name, record.name, digest


def folder_of(asked: Soak, number: int) -> Path:
    """Where the reports of a round are."""
    return asked.folder / "rounds" / f"{number:04d}"


def first_bad(rounds: Sequence[Round]) -> int | None:
    """The number of the first round with a problem."""
    return next((each.number for each in rounds if each.problems), None)


def _keep(asked: Soak, rounds: Sequence[Round], seconds: float) -> None:
    """Write the round's line and the summary, and remove the reports of the round before, unless it was the first bad one."""
    this = rounds[-1]
    with (asked.folder / LINES).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(this)) + "\n")
        lines.flush()
        os.fsync(lines.fileno())
    if len(rounds) > 1 and (before := this.number - 1) != first_bad(rounds):
        shutil.rmtree(folder_of(asked, before), ignore_errors=True)
    summary = {
        "schema": 3,
        "date": date_of_now(),
        "node": node_name(),
        "boot": boot_id(),
        "outcome": "failed" if first_bad(rounds) else "passed" if any(each.repeated for each in rounds) else "nothing compared",
        "device": asked.options.device,
        "scope": SCOPE[asked.options.device],
        "level": asked.options.level,
        "cards": asked.options.cards,
        "hours_asked": asked.hours,
        "hours": round(seconds / _SECONDS_PER_HOUR, 4),
        "notebooks": [plan.name for plan in asked.plans],
        "checks": sorted([*(check.name for plan in asked.plans for check in plan.checks), *([SEARCH] * asked.searches)]),
        "searched": sum(each.searched for each in rounds),
        "rounds": len(rounds),
        "seeds": sorted({each.seed for each in rounds}),
        "repeated": sum(each.repeated for each in rounds),
        "first_bad_round": first_bad(rounds),
        "problems": [asdict(problem) for each in rounds for problem in each.problems],
    }
    replace_text(asked.folder / SUMMARY, json.dumps(summary, indent=2) + "\n")


def format_round(this: Round) -> str:
    """The line of a round, its problems below."""
    state = N_("red") if this.problems else N_("green")
    begun = N_("{time}  round {number}, seed {seed}", time=this.began[11:19], number=this.number, seed=this.seed)
    facts = {"compared": this.compared, "repeated": this.repeated, "cases": this.searched, "seconds": f"{this.seconds:.0f}"}
    found = N_("{compared} checks compared, {repeated} repeated, {cases} cases searched, {seconds} s", **facts)
    line = N_("{begun}: {state}, {found}", begun=begun, state=state, found=found)
    return "\n".join([line, *(f"          {problem}" for problem in this.problems)])


def format_summary(asked: Soak, rounds: Sequence[Round], seconds: float) -> str:
    """What the soak found, for a terminal."""
    hours, repeated = f"{seconds / _SECONDS_PER_HOUR:.2f} h", sum(each.repeated for each in rounds)
    facts = {"device": asked.options.device, "rounds": len(rounds), "hours": hours, "repeated": repeated}
    lines = [N_("soak on {device}: {rounds} rounds in {hours}, {repeated} checks compared with an earlier round", **facts)]
    if rounds:
        used = {"before": rounds[0].memory_mib, "after": rounds[-1].memory_mib}
        lines.append(N_("memory in use after the first and the last round: {before} and {after} MiB", **used))
    if problems := [problem for each in rounds for problem in each.problems]:
        lines += [N_("RED: {problems} problems; the first: {problems2}", problems=len(problems), problems2=problems[0])]
        lines += [N_("its reports: {asked}", asked=folder_of(asked, problems[0].round) / "index.html")]
    else:
        green = N_("green: nothing was red, and every value repeated")
        nothing = N_("no verdict: no two rounds with the same seed ended, so no value was compared with an earlier one")
        lines.append(green if repeated else nothing)
    return "\n".join([*lines, SCOPE[asked.options.device]])
