"""One run from plans to reports: execute, judge as notebooks end, report what there is, whatever happened."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console

from xpulab.doctor.meant import LostAccelerator
from xpulab.doctor.remedies import by_id, match
from xpulab.errors import InputError
from xpulab.harness import places, report, run_file
from xpulab.harness.chapter import read_notebook
from xpulab.harness.execute import INTERRUPTED, KILLED, Execution, RunOptions
from xpulab.harness.explain import explanation
from xpulab.harness.fork_server import ImportHangs, Started, kernel_environment
from xpulab.harness.judge import Verdict, judge, not_run
from xpulab.harness.plan import Plan
from xpulab.harness.report.result import Result
from xpulab.messages import N_, shown
from xpulab.records.origin import date_of_now, seconds_of
from xpulab.records.record import RED

_NOTEBOOKS = "notebooks"
_WRITTEN = (run_file.NAME, _NOTEBOOKS, *report.FILES)
"""What a run writes into its folder."""

_OF_THE_END = ("KeyboardInterrupt", "NotebookIsRed")
"""Exceptions that are no finding of a cell: Ctrl-C, and the verdict on checks that are red by themselves."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: its result, whose reports are written, and whether it was interrupted before its end."""

    result: Result
    interrupted: bool


def run(
    plans: Sequence[Plan],
    options: RunOptions,
    jobs: int,
    folder: Path,
    console: Console,
    server: Started | None = None,
    resumed: bool = False,
) -> Outcome:
    """Run the notebooks, `jobs` at a time, and write the reports into the folder, which `prepare` made.

    server: the fork server that the kernels come from; without one it is started for this run, where a fork is safe.
    resumed: go on with the run that was interrupted in the folder: notebooks that have ended, or had shown something red, are
    judged as they are, the others run from their beginning.

    A notebook that needs more cards than there are is skipped, with the reason. On Ctrl-C what runs is stopped, and what
    has finished is reported. When Paddle's import hangs, no notebook is run, and the reports say so; what fails around the
    run, as its disk, is reported as a run without verdict.
    Raises InputError, of a run that is resumed, when the folder holds no run, or that of other options, plans, another machine
    or version.
    """
    if resumed:
        run_file.require_same(folder, plans, options)
        _make_for_notebooks(folder)
    else:
        run_file.write(folder, plans, options)
    started, interrupted, boot = time.monotonic(), False, run_file.boot_of(folder)
    verdicts = {plan.name: verdict for plan in plans if (verdict := _known(plan, options, folder))}
    left = [plan for plan in plans if plan.name not in verdicts]
    try:
        with kernel_environment(options.device, server) as environment:
            progress = Progress(console)
            execution = Execution(options, folder / _NOTEBOOKS, environment, on_start=progress.start)
            try:
                for plan, executed in execution.run(left, jobs):
                    verdicts[plan.name] = judge(plan, executed)
                    progress.end(verdicts[plan.name])
            except KeyboardInterrupt:
                interrupted = True
    except ImportHangs as error:
        known = explanation(by_id("import-hung"), N_("the import"), options.device)
        verdicts |= {plan.name: replace(not_run(plan, "missing", str(error)), explanations=(known,)) for plan in left}
    except (OSError, MemoryError, RuntimeError) as error:  # of the run itself: what of it has ended is reported all the same
        text = f"{type(error).__name__}: {error}"
        around = tuple(explanation(row, N_("the run"), options.device) for row in match(text) if row.no_verdict)
        if not around:
            raise
        rest = (plan for plan in left if plan.name not in verdicts)
        verdicts |= {plan.name: replace(not_run(plan, "missing", text), explanations=around) for plan in rest}
    ended = tuple(verdicts.get(plan.name) or _of_interrupted(plan, folder) for plan in plans)
    dates = [verdict.run.date for verdict in ended if resumed and verdict.run and verdict.run.date]
    date = min([*dates, date_of_now()], key=seconds_of)
    result = Result(options, ended, time.monotonic() - started, folder, date, boot=boot)
    try:
        report.write(result)
    except OSError as error:
        raise InputError(N_("{folder}: cannot be written: {strerror}", folder=folder, strerror=error.strerror)) from error
    return Outcome(result, interrupted)


class Progress:
    """Lines on the console, with the seconds so far: what starts, what ends, and what is red in it."""

    def __init__(self, console: Console) -> None:
        self._console, self._began = console, time.monotonic()
        self._lock = threading.Lock()

    def start(self, plan: Plan) -> None:
        """A notebook starts. Called from several threads."""
        self._show(plan.name, N_("started, about {seconds} s", seconds=f"{plan.expected_seconds:.0f}"))

    def end(self, verdict: Verdict) -> None:
        """A notebook was judged."""
        facts = {"outcome": verdict.outcome, "compared": verdict.compared, "records": len(verdict.records)}
        self._show(verdict.name, N_("{outcome}, {compared} of {records} checks compared", **facts))
        for reason in verdict.reasons if verdict.outcome == "failed" else ():
            self._show(verdict.name, reason)

    def _show(self, notebook: str, text: str) -> None:
        line = f"[{time.monotonic() - self._began:6.1f} s] {notebook}: {shown(text)}"
        with self._lock:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def holds_run(folder: Path) -> bool:
    """Whether a run was started in the folder: one that was killed before that has left nothing to resume."""
    return (folder / run_file.NAME).exists()


def refuse(plans: Sequence[Plan], options: RunOptions, folder: Path, lost: LostAccelerator) -> Result:
    """Write the reports of a run of which nothing ran: Paddle cannot use the accelerator that this machine is meant to have.

    folder: a new one, which `prepare` made, or that of a run which was interrupted.
    """
    reason = N_("not run: {headline}", headline=lost.headline)
    result = Result(options, tuple(not_run(plan, "missing", reason) for plan in plans), 0.0, folder, lost=lost)
    report.write(result)
    return result


def finished(plans: Sequence[Plan], options: RunOptions, folder: Path) -> Result | None:
    """The result of a run that has ended in this folder; None when there is something left to run or to report."""
    run_file.require_same(folder, plans, options)
    verdicts = tuple(filter(None, (_known(plan, options, folder) for plan in plans)))
    return report.of_ended_run(folder, options, verdicts) if len(verdicts) == len(plans) else None


def require_finished(plans: Sequence[Plan], options: RunOptions, folder: Path) -> Result:
    """As `finished`; raises InputError where that gives None."""
    result = finished(plans, options, folder)
    if result is None:
        raise InputError(
            N_("{folder}: its run has not ended; go on with it: xpulab run --resume --out {folder}", folder=folder)
        )
    return result


def executed_of(plan: Plan, folder: Path) -> Path:
    """The executed notebook in the folder of a run."""
    return folder / _NOTEBOOKS / f"{plan.name}.ipynb"


def _of_interrupted(plan: Plan, folder: Path) -> Verdict:
    executed = executed_of(plan, folder)
    return judge(plan, executed) if executed.exists() else not_run(plan, "missing", N_("interrupted before it started"))


def _known(plan: Plan, options: RunOptions, folder: Path) -> Verdict | None:
    """The verdict on a notebook that is not to run: it needs more cards, or it has a verdict from before an interruption.

    One that was interrupted while everything was green, or has no verdict, runs again; one that had shown red stays red.
    """
    if plan.cards > options.cards and options.device != "cpu":  # ranks are processes there
        facts = {"needed": plan.cards, "allowed": options.cards}
        return not_run(plan, "skipped", N_("it needs {needed} cards, and --cards allows {allowed}", **facts))
    try:
        executed = read_notebook(executed_of(plan, folder))
    except InputError:  # none, or damaged by a power failure
        return None
    verdict = judge(plan, executed_of(plan, folder))
    if verdict.run is None or not verdict.run.date or verdict.no_verdict:
        return None
    was_red = any(record.outcome in RED - {"missing"} for record in verdict.records) or any(map(_has_raised, executed.cells))
    return verdict if was_red or verdict.run.stopped not in (INTERRUPTED, KILLED) else None


def _has_raised(cell: NotebookNode) -> bool:
    """Whether a cell raised; the interruption itself is no finding."""
    return any(output.output_type == "error" and output.ename not in _OF_THE_END for output in cell.get("outputs", []))


def prepare(folder: Path, *more: str) -> None:
    """Make the folder for a run. more: names of what is written there beside that.

    Raises InputError when the folder holds something that would be overwritten, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if there := next((name for name in (*_WRITTEN, *more) if _holds_something(folder / name)), None):
            facts = {"folder": folder, "there": there}
            another = N_("{folder}: holds another run, or a file of yours: there is {there} already", **facts)
            remedy = N_("name another folder with --out, remove that one, or go on with it: --resume")
            raise InputError(N_("{another}; {remedy}", another=another, remedy=remedy))
        _make_for_notebooks(folder)
    except OSError as error:
        why = N_("{folder}: cannot be written: {strerror}", folder=folder, strerror=error.strerror)
        raise InputError(N_("{why}; name another folder with --out", why=why)) from error
    places.require(folder)


def _make_for_notebooks(folder: Path) -> None:
    """Make the folder for the executed notebooks. Raises InputError for a link: a run writes into its own folder only."""
    notebooks = folder / _NOTEBOOKS
    if notebooks.is_symlink():
        raise InputError(N_("{notebooks}: is a link; remove it, or name another folder with --out", notebooks=notebooks))
    notebooks.mkdir(exist_ok=True)


def _holds_something(path: Path) -> bool:
    """Whether a file, link or folder is there, but no empty folder: a run that was killed in `prepare` leaves one."""
    return any(path.iterdir()) if path.is_dir() and not path.is_symlink() else os.path.lexists(path)
