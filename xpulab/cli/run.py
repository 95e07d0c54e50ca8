"""`xpulab run`: the notebooks on this machine, and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.devices import MOST_CARDS, SIMULATED
from xpulab.errors import InputError
from xpulab.messages import N_, shown

if TYPE_CHECKING:
    from xpulab.doctor.meant import LostAccelerator
    from xpulab.harness.plan import Plan


@command()
def run(
    notebooks: Annotated[
        list[str] | None,
        typer.Argument(help="Numbers, names, paths or globs; without one, all chapters. release: those that judge a release."),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what would run, with its checks; run nothing.")] = False,
    device: Annotated[
        str, typer.Option(help="auto (what this machine is meant to have; red when that cannot be used), xpu, gpu, cpu or sim.")
    ] = "auto",
    rehearsed: Annotated[
        str | None,
        typer.Option(
            "--as", help="xpu or gpu: judge simulated cards by all that is known of this device, before there is one."
        ),
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="How many cards this machine must have: fewer are red. XPULAB_EXPECT says it for a site.")
    ] = None,
    cards: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_CARDS, help="How many cards a notebook may use. Default: all; sim: as many as one asks for."
        ),
    ] = None,
    level: Annotated[
        str, typer.Option(help="smoke: is it obviously broken. quick: does it work at all. standard: does it work right.")
    ] = "quick",
    seed: Annotated[int, typer.Option(min=0, hidden=True, help="Of data, initial values and order; 0 is the judged one.")] = 0,
    checks: Annotated[
        list[str] | None,
        typer.Option("--check", help="Run only what the checks with this name or glob need; may be given several times."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Notebooks at a time. Default: three for two processors; on cards one a card.")
    ] = None,
    time_limit: Annotated[
        int,
        typer.Option(
            min=2,
            max=100,
            hidden=True,
            help="A notebook that takes so many times its budget is stopped; raise it on a busy machine.",
        ),
    ] = 5,
    cold: Annotated[
        bool, typer.Option("--cold", hidden=True, help="Start every kernel anew instead of forking it from a warm process.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out that was killed or interrupted; give its options again."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
) -> None:
    """Run the notebooks on this machine and say whether it is ready."""
    from rich.console import Console

    from xpulab.doctor.meant import AcceleratorLost
    from xpulab.harness import fork_server
    from xpulab.harness.plan import make_plans

    if resume and out is None:
        raise InputError(N_("--resume needs the folder of the run that was interrupted: name it with --out"))
    named, globs = notebooks or [], checks or []
    is_whole = not (named or globs)
    if show_list:
        chosen.alone("--list", expect=expect, cards=cards, jobs=jobs, out=out, cold=cold, resume=resume)
        _show_list(make_plans(named, level, globs), is_whole)
        return
    chosen.rehearse(rehearsed, device)
    expected = chosen.expect(expect, device)
    try:
        used = chosen.device(device, expected)
        if used == SIMULATED:
            chosen.cards(used, cards, make_plans(named, level, globs), expected)
    except AcceleratorLost as error:
        _refuse(make_plans(named, level, globs), error.lost, cards or 1, seed, is_whole, chosen.folder(out), resume)
        raise typer.Exit(1) from None
    with fork_server.started(used, cold) as server:  # it imports while the notebooks are read
        from xpulab.harness import run as harness
        from xpulab.harness.execute import RunOptions
        from xpulab.harness.plan import refuse_other_environments
        from xpulab.harness.report.text import format_result
        from xpulab.records import baselines, hardware

        plans, folder = make_plans(named, level, globs), chosen.folder(out)
        refuse_other_environments(plan.chapter for plan in plans)
        baselines.load_all(baselines.folder())  # what is wrong in them is said now, not by each notebook
        hardware.sheets()
        options = RunOptions(used, level, chosen.cards(used, cards, plans), seed, rehearsed or "", time_limit, is_whole)
        at_once = jobs or chosen.jobs(used, len(plans), options.cards)
        if rehearsed:
            chosen.show_machine(rehearsed, server.folder, options.cards)
        chosen.limit_threads(at_once, len(plans))
        goes_on = resume and harness.holds_run(folder)
        if goes_on and (ended := harness.finished(plans, options, folder)) is not None:
            outcome = harness.Outcome(ended, False)
            print(shown(N_("{folder}: this run has ended, there is nothing to resume", folder=folder)))
        else:
            if not goes_on:
                harness.prepare(folder)
            banner = shown(
                N_(
                    "device {used}, level {level}, {plans} notebooks, {at_once} at a time",
                    used=f"{used} as {rehearsed}" if rehearsed else used,
                    level=level,
                    plans=len(plans),
                    at_once=at_once,
                )
            )
            print(banner)
            _show_left_out(is_whole)
            outcome = harness.run(plans, options, at_once, folder, Console(), server, goes_on)
    print(format_result(outcome.result))
    print(shown(N_("report: {folder}", folder=folder / "index.html")))
    if outcome.interrupted:
        raise KeyboardInterrupt
    raise typer.Exit(0 if outcome.result.is_green else 2 if outcome.result.no_verdict else 1)


def _show_list(plans: list[Plan], is_whole: bool) -> None:
    """Show what would run."""
    from xpulab.harness.plan import format_plan

    for plan in plans:
        print(format_plan(plan))
    _show_left_out(is_whole)


def _show_left_out(is_whole: bool) -> None:
    """Show a line for each chapter that a run without names leaves out."""
    from xpulab.harness.plan import format_left_out, with_own_environment

    for name in with_own_environment() if is_whole else ():
        print(shown(format_left_out(name)))


def _refuse(
    plans: list[Plan], lost: LostAccelerator, cards: int, seed: int, is_whole: bool, folder: Path, resume: bool
) -> None:
    """Report that nothing ran, because Paddle cannot use the accelerator that this machine is meant to have."""
    from xpulab.harness import run as harness
    from xpulab.harness.execute import RunOptions
    from xpulab.harness.report.text import format_result

    if not (resume and harness.holds_run(folder)):
        harness.prepare(folder)
    result = harness.refuse(plans, RunOptions(lost.device, plans[0].level, cards, seed, is_whole=is_whole), folder, lost)
    print(shown(N_("report: {folder}", folder=folder / "index.html")))
    print(format_result(result))
