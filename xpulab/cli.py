"""The commands of xpulab: run, gate, doctor, shapes, selftest, baseline, lab and model.

Exit codes: 0 green, 1 red, 2 could not run, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xpulab import __version__
from xpulab.devices import MOST_CARDS, SIMULATED, wheel_device
from xpulab.errors import InputError

if TYPE_CHECKING:
    from xpulab.harness.plan import Plan

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Notebooks that teach PaddlePaddle training on XPU, GPU and CPU, and test the machine that they run on.",
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"xpulab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before a command; each acts in its own callback."""


def main() -> None:
    """The entry point of the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    app()


def _reporting_input_errors(command: Callable) -> Callable:
    """An InputError becomes one message and exit code 2."""

    @wraps(command)
    def reporting(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except InputError as error:
            print(f"xpulab: {error}", file=sys.stderr)
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            print("xpulab: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    return reporting


@app.command()
@_reporting_input_errors
def run(
    notebooks: Annotated[list[str] | None, typer.Argument(help="Names, paths or globs; without one, all.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what would run, with its checks; run nothing.")] = False,
    device: Annotated[str, typer.Option(help="auto (the first of xpu, gpu, cpu there is), xpu, gpu, cpu or sim.")] = "auto",
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
    jobs: Annotated[int | None, typer.Option(min=1, help="Notebooks at a time. Default: one a core, on a card one.")] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start every kernel anew instead of forking it from a warm process.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
) -> None:
    """Run the notebooks on this machine and say whether it is ready."""
    from rich.console import Console

    from xpulab.harness.plan import check_needs, format_plan, make_plans
    from xpulab.harness.soak import LEVEL as SOAK
    from xpulab.harness.soak.selection import ROUND_LEVEL, check_hours, make_soak_plans

    check_hours(hours, level)
    is_soak = level == SOAK
    level = ROUND_LEVEL if is_soak else level
    plans = make_soak_plans(notebooks or [], checks or []) if is_soak else make_plans(notebooks or [], level, checks or [])
    if show_list:
        for plan in plans:
            check_needs(plan.chapter)
            print(format_plan(plan))
        return

    from xpulab.harness import run as harness
    from xpulab.harness.execute import Target
    from xpulab.harness.report.text import format_result
    from xpulab.records import baselines

    baselines.load_all(baselines.folder())  # what is wrong in them is said now, not by each notebook
    device = _device(device)
    folder = _folder(out)
    target = Target(device, level, _cards(device, cards, plans), seed)
    at_once = jobs or _jobs(device, len(plans))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # notebooks share the cores, and tiny models gain nothing from more
    console = Console()
    if is_soak:
        from xpulab.harness.soak.loop import Soak, run_soak

        raise typer.Exit(run_soak(Soak(tuple(plans), target, at_once, hours, folder, cold), console))
    harness.prepare(folder)
    console.print(f"device {device}, level {level}, {len(plans)} notebooks, {at_once} at a time", highlight=False)
    outcome = harness.run(plans, target, at_once, folder, console, cold)
    console.print(format_result(outcome.result), highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {folder / 'index.html'}", highlight=False, markup=False, soft_wrap=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
    raise typer.Exit(0 if outcome.result.is_green else 1)


@app.command()
@_reporting_input_errors
def gate(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, or one that holds the folders of several runs.")] = Path(
        "out"
    ),
    max_age: Annotated[float, typer.Option(min=0, help="Hours after which a green verdict counts as none.")] = 24.0,
) -> None:
    """Say in one line what the last whole run found. Exit code 0: green, 1: red, 2: no verdict, or a green one that is too old.

    It only reads result.json, for a scheduler's prolog or health check: a job measures, with xpulab run.
    """
    from xpulab.fleet.gate import gate as last_verdict

    answer = last_verdict(folder, max_age)
    print(answer.line)
    raise typer.Exit(answer.code)


@app.command()
@_reporting_input_errors
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="The diagnosis as JSON.")] = False,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that an import, or a computation on a card, may take. Default: 120.")
    ] = None,
) -> None:
    """Show what is installed, what is wrong, and which command fixes it. Exit code 1 when something is wrong.

    Paddle and PaddleNLP are imported in another process, which also computes on every card.
    """
    from xpulab.doctor.detect import detect, require
    from xpulab.doctor.diagnosis import diagnose
    from xpulab.doctor.probe import TIMEOUT, probe
    from xpulab.doctor.render import format_diagnosis

    detection = detect()
    device = detection.device if device == "auto" else device
    require(device, detection)
    diagnosis = diagnose(device, detection=detection, probed=probe(device, timeout or TIMEOUT))
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else format_diagnosis(diagnosis))
    raise typer.Exit(1 if diagnosis.outcome == "wrong" else 0)


@app.command(context_settings={"allow_interspersed_args": False})
@_reporting_input_errors
def shapes(
    script: Annotated[Path, typer.Argument(help="The Python file that starts the training. Options go before it.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")] = None,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    step: Annotated[int, typer.Option(min=1, help="The optimizer step that is recorded, with what leads to it.")] = 2,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that script and comparison may take. Default: 1800.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder that keeps the report and what the script prints.")] = None,
) -> None:
    """Record the operators of one step of a training script, and compare each with numpy on this device.

    The script ends after this step. Exit code 1 when an operator, or its gradient, is wrong.
    """
    from xpulab.operators import command

    request = command.Request(script, tuple(arguments or ()), _device(device), step, timeout or command.TIMEOUT)
    report = command.shapes(request, out)
    print(json.dumps(report, indent=2) if as_json else command.format_report(report))
    raise typer.Exit(0 if command.is_right(report) else 1)


@app.command()
@_reporting_input_errors
def selftest(
    names: Annotated[list[str] | None, typer.Option("--fault", help="Only this fault; may be given several times.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the faults; try none.")] = False,
    control: Annotated[
        bool, typer.Option("--control", help="Run the same sections without a fault: every check must be green.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as JSON.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Faults at a time. Default: one a core.")] = None,
) -> None:
    """Inject known faults, one at a time, and show that the notebooks detect each. Exit code 1 when one is missed."""
    from xpulab.faults import selftest as proof
    from xpulab.faults import table

    faults = proof.faults_named(names or [])
    if show_list:
        print(table.format_catalogue(faults))
        return

    from xpulab import sim
    from xpulab.faults.command import run_controls, run_trials

    if any(SIMULATED in fault.lanes for fault in faults):
        sim.environment(proof.CARDS)  # builds the plug-in now, or says what is missing
    run = run_controls if control else run_trials
    raise typer.Exit(run(faults, jobs or _jobs("cpu", len(faults)), as_json))


@app.command()
@_reporting_input_errors
def baseline(
    runs: Annotated[int, typer.Option(min=2, help="How many times it is measured; tolerances come from their spread.")] = 5,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    cards: Annotated[int | None, typer.Option(min=1, max=MOST_CARDS, help="As for xpulab run.")] = None,
    level: Annotated[str, typer.Option(help="As for xpulab run; each level has baselines of its own.")] = "quick",
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
) -> None:
    """Measure losses, rates and memory on this machine, idle as it should be, and keep them as its baselines."""
    from rich.console import Console

    from xpulab.harness import baseline as measurement
    from xpulab.harness.execute import Target
    from xpulab.harness.plan import make_plans
    from xpulab.harness.report.text import format_result
    from xpulab.records import baselines

    plans = measurement.measuring(make_plans([], level))
    if not plans:
        raise InputError(f"no notebook has a check against baselines at level {level}; choose another level")
    baselines.load_all(baselines.folder())  # what is wrong there is said now, not after the runs
    device = _device(device)
    folder = _folder(out)
    target = Target(device, level, _cards(device, cards, plans))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console()
    names = ", ".join(plan.name for plan in plans)
    console.print(f"device {device}, level {level}, {runs} runs of {names}, one at a time", highlight=False)
    try:
        baseline = measurement.measure(plans, target, runs, folder, console)
    except measurement.NotGreen as red:
        console.print(format_result(red.result), highlight=False, markup=False, soft_wrap=True)
        console.print(f"nothing was kept: {red}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    path = baselines.store(baseline, baselines.folder())
    console.print(f"{path}: {len(baseline.entries)} baselines, {baseline.origin}", highlight=False, soft_wrap=True)


@app.command()
@_reporting_input_errors
def model(
    name: Annotated[str | None, typer.Argument(help="A release of --list, or the folder of a model.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the releases that can be fetched.")] = False,
    optional: Annotated[
        bool, typer.Option("--optional", help="One line and exit code 0 when it cannot be had; nothing when it is prepared.")
    ] = False,
) -> None:
    """Prepare a pretrained model in the user's cache, verified and converted for PaddleNLP, and say where it came from."""
    from xpulab.pretrained.prepare import find, format_prepared, prepare
    from xpulab.pretrained.releases import RELEASES

    if optional and name in RELEASES:
        return _prepare_if_possible(name)

    if show_list or name is None:
        for release in RELEASES.values():
            state = "prepared" if find(release.name) else f"{release.size_mb} MB to download"
            print(f"{release.name}  {release.title}, {release.license}, {state}\n  {release.origin}")
        return
    print(format_prepared(prepare(name)))


def _prepare_if_possible(name: str) -> None:
    """Prepare a release unless it is prepared, and say in one line on standard error what came of it."""
    from xpulab.pretrained.prepare import find, prepare
    from xpulab.pretrained.releases import RELEASES

    if find(name):
        return
    release = RELEASES[name]
    print(f"xpulab: fetching {release.title} once ({release.size_mb} MB): ", end="", file=sys.stderr, flush=True)
    try:
        print(f"prepared in {prepare(name).folder}", file=sys.stderr)
    except InputError as error:
        print(f"not possible, goes on without it: {error}", file=sys.stderr)


@app.command()
@_reporting_input_errors
def lab() -> None:
    """Open JupyterLab on the notebooks, where the kernel "Python 3 (xpulab, warm)" starts within a second."""
    from xpulab import files
    from xpulab.warm import kernels

    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={files.ROOT}", str(files.NOTEBOOKS)]
    raise typer.Exit(kernels.run_command(command))


def _device(asked: str) -> str:
    """The device to run on: the one asked for when it is there, for auto the best one that is.

    Raises InputError for a device that is not there, and when the installed wheel is not the device's.
    """
    from xpulab.doctor.detect import detect, require
    from xpulab.doctor.versions import framework_row, installed_frameworks, require_one_framework

    found = detect()
    device = found.device if asked == "auto" else asked
    require(device, found)
    require_one_framework(device)
    wanted = framework_row(device)
    if wanted.what not in installed_frameworks():
        instead = "" if wheel_device(device) == "cpu" else ", or pass --device cpu to run on the CPU all the same"
        raise InputError(f"{device} needs {wanted.what}, which is not installed here: run env/validate.sh{instead}")
    return device


def _folder(out: Path | None) -> Path:
    """Where the reports of a run go."""
    return (out or Path("out") / datetime.now().strftime("%Y-%m-%d-%H%M%S")).resolve()


def _cards(device: str, asked: int | None, plans: Sequence[Plan]) -> int:
    """How many cards a notebook may use; there are as many simulated ones as one asks for.

    Raises InputError when the plug-in that simulates them, which is built now, cannot be built.
    """
    if device != SIMULATED:
        return asked or 1
    from xpulab import sim

    cards = asked or max(plan.cards for plan in plans)
    sim.environment(cards)
    return cards


def _jobs(device: str, notebooks: int) -> int:
    """A notebook a core on the CPU; on a card one at a time, since they would share its memory."""
    return min(notebooks, os.cpu_count() or 1) if wheel_device(device) == "cpu" else 1
