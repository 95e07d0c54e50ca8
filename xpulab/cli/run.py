"""`xpulab run`: the notebooks on this machine, and the verdict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xpulab.cli import chosen, ending
from xpulab.cli.app import command
from xpulab.devices import MOST_CARDS, SIMULATED
from xpulab.doctor.meant import AcceleratorLost

if TYPE_CHECKING:
    from xpulab.harness.plan import Plan


@command()
def run(
    notebooks: Annotated[list[str] | None, typer.Argument(help="Names, paths or globs; without one, all.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what would run, with its checks; run nothing.")] = False,
    device: Annotated[
        str, typer.Option(help="auto (what this machine is meant to have; red when that cannot be used), xpu, gpu, cpu or sim.")
    ] = "auto",
    expect: Annotated[
        str | None, typer.Option(help="How many cards this machine must have: fewer are red. XPULAB_LABEL says it for a site.")
    ] = None,
    cards: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_CARDS, help="How many cards a notebook may use. Default: 1; sim: as many as one asks for."
        ),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            help="smoke: is it obviously broken. quick: does it work at all. standard: does it work right. "
            "soak: does it keep working: training, collectives and checkpoints again and again, see --hours."
        ),
    ] = "quick",
    hours: Annotated[
        float | None, typer.Option(help="Only with --level soak: how long. Default: until it is interrupted.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of data, initial values and order; with --level soak that of the first round.")
    ] = 0,
    checks: Annotated[
        list[str] | None,
        typer.Option("--check", help="Run only what the checks with this name or glob need; may be given several times."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Notebooks at a time. Default: as many as processors and memory have room for; on a card one."
        ),
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start every kernel anew instead of forking it from a warm process.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out that was killed or interrupted; give its options again."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Then inject a sample of faults here; one that no check detects makes the run red.")
    ] = False,
    faults: Annotated[int, typer.Option(min=1, help="With --prove: how many.")] = 6,
    bundle: Annotated[
        Path | None, typer.Option(help="Then write this new file, with everything that the run knows, as xpulab bundle does.")
    ] = None,
) -> None:
    """Run the notebooks on this machine and say whether it is ready."""
    from xpulab.harness import fork_server
    from xpulab.harness.soak import LEVEL as SOAK

    is_soak = level == SOAK
    ending.check_options(is_soak, prove, bundle)
    chosen.check_resume(resume, out, is_soak)
    if show_list:
        _show(_plans(notebooks, level, checks, hours), chosen.device(device))
        return
    chosen.expect(expect, device)
    try:
        device = chosen.device(device)
        if device == SIMULATED:
            chosen.cards(device, cards, _plans(notebooks, level, checks, hours))
    except AcceleratorLost as error:
        plans = _plans(notebooks, level, checks, hours)
        result = ending.refused(plans, cards or 1, seed, chosen.folder(out), error.lost, resume, bundle)
        if is_soak:
            ending.refused_soak(result, plans, hours)
        raise typer.Exit(1) from error
    with fork_server.started(device, cold or is_soak) as begun:  # it imports while the notebooks are read
        plans = _plans(notebooks, level, checks, hours)

        from rich.console import Console

        from xpulab.harness import run as harness
        from xpulab.harness.execute import Target
        from xpulab.harness.report.text import format_result
        from xpulab.harness.soak.selection import ROUND_LEVEL
        from xpulab.records import baselines

        baselines.load_all(baselines.folder())  # what is wrong in them is said now, not by each notebook
        level = ROUND_LEVEL if is_soak else level
        folder = chosen.folder(out)
        target = Target(device, level, chosen.cards(device, cards, plans), seed)
        at_once, fixed = chosen.admission(device, jobs), jobs or chosen.jobs(device, len(plans))
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # notebooks share the cores, and tiny models gain nothing from more
        if len(plans) > 1 and at_once != 1:  # two threads of a matrix product wait for each other in busy loops
            os.environ.setdefault("MKL_NUM_THREADS", "1")
        console = Console()
        if is_soak:
            from xpulab.harness.soak.loop import Soak, run_soak

            raise typer.Exit(run_soak(Soak(tuple(plans), target, fixed, hours, folder, cold), console))
        is_resumed = resume and harness.is_begun(folder)
        if is_resumed:
            if (ended := harness.finished(plans, target, folder)) is not None:
                ended = ending.finished(ended, faults if prove else 0, fixed, bundle, console)
                raise typer.Exit(0 if ended.is_green else 1)
        else:
            harness.prepare(folder)
        many = chosen.format_admission(at_once)
        console.print(f"device {device}, level {level}, {len(plans)} notebooks, {many}", highlight=False, soft_wrap=True)
        outcome = (harness.resume if is_resumed else harness.run)(plans, target, at_once, folder, console, cold, begun)
    result = ending.proved(outcome, faults, fixed, console) if prove else outcome.result
    console.print(format_result(result), highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {folder / 'index.html'}", highlight=False, markup=False, soft_wrap=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if bundle:
        ending.write_bundle(folder, bundle)
    raise typer.Exit(0 if result.is_green else 1)


def _plans(notebooks: list[str] | None, level: str, checks: list[str] | None, hours: float | None) -> list[Plan]:
    """What runs. Raises InputError when it cannot, before anything runs."""
    from xpulab.harness.plan import make_plans
    from xpulab.harness.soak import LEVEL as SOAK
    from xpulab.harness.soak.selection import check_hours, make_soak_plans

    check_hours(hours, level)
    if level == SOAK:
        return make_soak_plans(notebooks or [], checks or [])
    return make_plans(notebooks or [], level, checks or [])


def _show(plans: list[Plan], device: str) -> None:
    """Their times are those measured on this machine, once there are any."""
    from xpulab.harness.measured_times import MeasuredTimes
    from xpulab.harness.plan import check_needs, format_plan

    for plan in plans:
        check_needs(plan.chapter)
        print(format_plan(plan, MeasuredTimes(device, plan.level).seconds(plan)))
