"""The kinds of `xpulab run`: the list, a run that is refused, a soak, one that goes on, a new one; and what follows a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from xpulab.cli import chosen
from xpulab.devices import SIMULATED
from xpulab.doctor.meant import AcceleratorLost
from xpulab.errors import InputError
from xpulab.messages import N_, shown

if TYPE_CHECKING:
    from rich.console import Console

    from xpulab.doctor.meant import LostAccelerator
    from xpulab.harness.execute import Target
    from xpulab.harness.fork_server import Started
    from xpulab.harness.plan import Plan
    from xpulab.harness.report.result import Result
    from xpulab.harness.run import Outcome


@dataclass(frozen=True)
class Asked:
    """The options of `xpulab run`, which says what each means."""

    notebooks: list[str] | None
    show_list: bool
    device: str
    expect: str | None
    cards: int | None
    level: str
    hours: float | None
    seed: int
    checks: list[str] | None
    jobs: int | None
    time_limit: int
    cold: bool
    resume: bool
    out: Path | None
    prove: bool
    faults: int
    bundle: Path | None

    @property
    def is_soak(self) -> bool:
        """Whether it lasts until it is interrupted."""
        return self.level == "soak"

    @cached_property
    def plans(self) -> list[Plan]:
        """What runs. Raises InputError when it cannot, before anything runs."""
        from xpulab.harness.plan import make_plans
        from xpulab.soak.selection import check_hours, make_soak_plans

        check_hours(self.hours, self.level)
        if self.is_soak:
            return make_soak_plans(self.notebooks or [], self.checks or [])
        return make_plans(self.notebooks or [], self.level, self.checks or [])


def start(asked: Asked) -> int:
    """Run what is asked for; the exit code. InputError: nothing can run. KeyboardInterrupt: it was interrupted."""
    _check_options(asked.is_soak, asked.prove, asked.bundle)
    chosen.check_resume(asked.resume, asked.out, asked.is_soak)
    if asked.show_list:
        return _list(asked)
    chosen.expect(asked.expect, asked.device)
    try:
        device = chosen.device(asked.device)
        if device == SIMULATED:
            chosen.cards(device, asked.cards, asked.plans)
    except AcceleratorLost as error:
        return _refused(asked, error.lost)
    from xpulab.harness import fork_server

    with fork_server.started(device, asked.cold or asked.is_soak) as begun:  # it imports while the notebooks are read
        plans = asked.plans

        from rich.console import Console

        from xpulab.harness.execute import Target
        from xpulab.harness.plan import refuse_other_environments
        from xpulab.records import baselines
        from xpulab.soak.selection import ROUND_LEVEL

        refuse_other_environments(plan.chapter for plan in plans)
        baselines.load_all(baselines.folder())  # what is wrong in them is said now, not by each notebook
        level = ROUND_LEVEL if asked.is_soak else asked.level
        target = Target(device, level, chosen.cards(device, asked.cards, plans), asked.seed, asked.time_limit)
        chosen.limit_threads(chosen.admission(device, asked.jobs), len(plans))
        if asked.is_soak:
            return _soak(asked, target, Console())
        outcome = _run(asked, target, begun, Console())
    return _after(outcome, asked, Console())


def _list(asked: Asked) -> int:
    """Show what would run. Times are those measured on this machine, once there are any."""
    from xpulab.harness.measured_times import MeasuredTimes
    from xpulab.harness.plan import check_needs, format_plan

    plans, device = asked.plans, chosen.device(asked.device)
    for plan in plans:
        check_needs(plan.chapter)
        print(format_plan(plan, MeasuredTimes(device, plan.level).seconds(plan)))
    for line in _left_out(asked):
        print(shown(line))
    return 0


def _left_out(asked: Asked) -> list[str]:
    """A line for each chapter that a run without names leaves out."""
    from xpulab.harness.plan import format_left_out, with_own_environment

    return [] if asked.notebooks or asked.checks else [*map(format_left_out, with_own_environment())]


def _refused(asked: Asked, lost: LostAccelerator) -> int:
    """Report that nothing ran, because Paddle cannot use the accelerator that this machine is meant to have."""
    from xpulab.harness import run as harness
    from xpulab.harness.execute import Target
    from xpulab.harness.report.text import format_result

    folder = chosen.folder(asked.out)
    if not (asked.resume and harness.is_begun(folder)):
        harness.prepare(folder)
    target = Target(lost.device, asked.plans[0].level, asked.cards or 1, asked.seed)
    result = harness.refuse(asked.plans, target, folder, lost)
    if asked.bundle:
        _write_bundle(folder, asked.bundle)
    print(shown(f"report: {folder / 'index.html'}"))
    print(format_result(result))
    if asked.is_soak:
        _refused_soak(result, asked.plans, asked.hours)
    return 1


def _soak(asked: Asked, target: Target, console: Console) -> int:
    from xpulab.soak.loop import Soak, run_soak

    jobs = _fixed_jobs(asked, target)
    return run_soak(Soak(tuple(asked.plans), target, jobs, asked.hours, chosen.folder(asked.out), asked.cold), console)


def _run(asked: Asked, target: Target, begun: Started, console: Console) -> Outcome:
    """A new run, or one that goes on."""
    from xpulab.harness import run as harness

    plans, folder, at_once = asked.plans, chosen.folder(asked.out), chosen.admission(target.device, asked.jobs)
    goes_on = asked.resume and harness.is_begun(folder)
    if goes_on and (ended := harness.finished(plans, target, folder)) is not None:
        console.print(shown(f"{folder}: this run has ended, there is nothing to resume"), markup=False, soft_wrap=True)
        return harness.Outcome(ended, False)
    if not goes_on:
        harness.prepare(folder)
    admission = chosen.format_admission(at_once)
    banner = shown(f"device {target.device}, level {target.level}, {len(plans)} notebooks, {admission}")
    console.print(banner, highlight=False, markup=False, soft_wrap=True)
    for line in _left_out(asked):
        console.print(shown(line), highlight=False, markup=False, soft_wrap=True)
    return (harness.resume if goes_on else harness.run)(plans, target, at_once, folder, console, asked.cold, begun)


def _after(outcome: Outcome, asked: Asked, console: Console) -> int:
    """Inject faults and write a bundle, where this is asked for; show the result."""
    from xpulab.harness.report.text import format_result

    result = outcome.result
    if asked.prove and not outcome.interrupted and _is_to_prove(result, asked.faults):
        from xpulab.faults.prove import prove

        result = prove(result, asked.faults, _fixed_jobs(asked, result.target), console)
    console.print(format_result(result), highlight=False, markup=False, soft_wrap=True)
    console.print(shown(f"report: {result.folder / 'index.html'}"), highlight=False, markup=False, soft_wrap=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if asked.bundle:
        _write_bundle(result.folder, asked.bundle)
    return 0 if result.is_green else 1


def _fixed_jobs(asked: Asked, target: Target) -> int:
    return asked.jobs or chosen.jobs(target.device, len(asked.plans))


def _check_options(is_soak: bool, prove: bool, bundle: Path | None) -> None:
    """Raises InputError, before anything runs, for options that a soak does not have and a bundle that cannot be written."""
    if is_soak and (prove or bundle):
        option, instead = (
            ("--prove", N_("run it at another level")) if prove else ("--bundle", N_("`xpulab bundle DIR` makes it later"))
        )
        raise InputError(N_(f"{option}: not with --level soak; {instead}"))
    if bundle:
        from xpulab.fleet.bundle import refuse_existing

        refuse_existing(bundle)


def _refused_soak(result: Result, plans: Sequence[Plan], hours: float | None) -> None:
    """Write what programs read of a soak beside the reports of its run, of which nothing ran. hours: as they were asked for."""
    from xpulab.soak.report import Summary, files_of_refused

    summary = Summary(result.target, tuple(plans), (), 0.0, hours, False, result.folder, None, result.lost)
    for name, text in files_of_refused(summary).items():
        (result.folder / name).write_text(text, encoding="utf-8")


def _is_to_prove(ended: Result, faults: int) -> bool:
    """Whether the run has no proof yet, or one with fewer faults than are asked for, of which more fit."""
    return ended.proof is None or len(ended.proof.faults) < min(faults, ended.proof.candidates)


def _write_bundle(folder: Path, out: Path) -> None:
    """Write the bundle of the run, and say what was removed and where the file is."""
    from xpulab.fleet import bundle
    from xpulab.fleet.sending import collect, format_removed, format_written

    collected = collect(folder, bundle.EVERYTHING)
    bundle.write(collected, out)
    print(format_removed(collected.bundle))
    print(format_written(out))
