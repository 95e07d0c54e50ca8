"""One run from plans to reports: execute, judge as notebooks end, report what there is, whatever happened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console

from xpulab import warm
from xpulab.doctor.meant import LostAccelerator
from xpulab.doctor.remedies import by_id
from xpulab.errors import InputError
from xpulab.harness import fork_server, report, run_file
from xpulab.harness.execute import Execution, Target
from xpulab.harness.explain import explanation
from xpulab.harness.fork_server import Started
from xpulab.harness.judge import Verdict, judge, not_run
from xpulab.harness.measured_times import MeasuredTimes
from xpulab.harness.plan import Plan
from xpulab.harness.progress import progress_on
from xpulab.harness.report.result import Result
from xpulab.harness.resume import (
    Begun,
    begin,
    executed_of,
    finish,
    has_ended,
    records_of,
    variables,
)
from xpulab.harness.running import RunningResult
from xpulab.messages import N_
from xpulab.warm import kernels as warm_kernels

IMPORT_SECONDS = 120.0
"""How long the imports of Paddle and PaddleNLP may take, once for all notebooks."""

_OF_ANOTHER_RUN = ("result.json", "notebooks", "soak.jsonl", run_file.NAME)
"""What a folder for reports must not hold."""


class ImportHangs(InputError):
    """Paddle or PaddleNLP cannot be imported within IMPORT_SECONDS: no notebook could run."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: its result, whose reports are written, and whether it was interrupted before its end."""

    result: Result
    interrupted: bool


def run(
    plans: Sequence[Plan],
    target: Target,
    jobs: int | None,
    folder: Path,
    console: Console,
    cold: bool = False,
    begun: Started | None = None,
) -> Outcome:
    """Run the notebooks and write the reports into the folder, which `prepare` made.

    jobs: so many at a time; None: as many as the machine has room for.
    cold: every kernel imports everything itself; otherwise kernels are forked from a process that has, where that is safe.
    begun: the fork server, when it was started before.

    A notebook that needs more cards than there are is skipped, with the reason. On Ctrl-C what runs is stopped, and what
    has finished is reported. When Paddle's import hangs, no notebook is run, and the reports say so.
    """
    run_file.write(folder, plans, target)
    nothing_runs = all(_skipped(plan, target) for plan in plans)
    with run_file.held(folder):
        kernels = kernel_environment(target.device, cold or nothing_runs, begun)
        return run_in(kernels, plans, target, jobs, folder, console)


def resume(
    plans: Sequence[Plan],
    target: Target,
    jobs: int | None,
    folder: Path,
    console: Console,
    cold: bool = False,
    begun: Started | None = None,
) -> Outcome:
    """Go on with the run that was interrupted in this folder; as `run`, which it leaves the same reports as.

    Notebooks that have ended are judged, the others run from their beginning; what was red in one that had begun stays red.
    Raises InputError when the folder holds no run, the run of another target, plan, machine or version, or one that is under
    way.
    """
    run_file.require_same(folder, plans, target)
    with run_file.held(folder):
        left = [begin(plan, folder) for plan in plans]
        nothing_runs = all(each.has_ended or _skipped(each.plan, target) for each in left)
        kernels = kernel_environment(target.device, cold or nothing_runs, begun)
        return _run(kernels, left, folder, target, jobs, console)


def is_begun(folder: Path) -> bool:
    """Whether a run has begun in the folder: one that was killed before that has left nothing to resume."""
    return (folder / run_file.NAME).exists()


def refuse(plans: Sequence[Plan], target: Target, folder: Path, lost: LostAccelerator) -> Result:
    """Write the reports of a run of which nothing ran: Paddle cannot use the accelerator that this machine is meant to have.

    folder: a new one, which `prepare` made, or that of a run which was interrupted.
    """
    reason = N_(f"not run: {lost.headline}")
    verdicts = tuple(not_run(plan, "missing", reason) for plan in plans)
    result = Result(target, verdicts, 0.0, folder, lost=lost)
    report.write(result)
    return result


def finished(plans: Sequence[Plan], target: Target, folder: Path) -> Result | None:
    """The result of a run that has ended in this folder; None when there is something left to run or to report."""
    run_file.require_same(folder, plans, target)
    if not report.is_complete(folder):
        return None
    if not all(_skipped(plan, target) or has_ended(plan, folder) for plan in plans):
        return None
    verdicts = tuple(_skipped(plan, target) or judge(plan, executed_of(plan, folder)) for plan in plans)
    return report.of_ended_run(folder, target, verdicts)


def run_in(
    kernels: AbstractContextManager[Mapping[str, str]],
    plans: Sequence[Plan],
    target: Target,
    jobs: int | None,
    folder: Path,
    console: Console,
) -> Outcome:
    """As `run`, with kernels that have the variables which the context `kernels` gives, in the form of kernel_environment.

    Such a run cannot be resumed.
    """
    return _run(kernels, [Begun(plan) for plan in plans], folder, target, jobs, console)


def _run(
    kernels: AbstractContextManager[Mapping[str, str]],
    begun: Sequence[Begun],
    folder: Path,
    target: Target,
    jobs: int | None,
    console: Console,
) -> Outcome:
    """Run what is left of each notebook, judge it as a whole, and write the reports."""
    started = time.monotonic()
    by_name = {each.plan.name: each for each in begun}
    verdicts = {name: too_few for name, each in by_name.items() if (too_few := _skipped(each.plan, target))}
    for name, each in by_name.items():
        if each.has_ended and name not in verdicts:
            verdicts[name] = judge(each.plan, executed_of(each.plan, folder))
    runnable = [each.plan for name, each in by_name.items() if name not in verdicts]
    interrupted = False
    so_far = RunningResult([each.plan for each in begun], target, folder)
    for each in begun:
        so_far.kept(each.plan, records_of(each))
    for verdict in verdicts.values():
        so_far.on_end(verdict)
    times = MeasuredTimes(target.device, target.level)
    try:
        with so_far, progress_on(console, runnable, times) as progress, kernels as environment:

            def on_cell_end(plan: Plan, cell: NotebookNode) -> None:
                progress.on_cell_end(plan, cell)
                so_far.on_cell_end(plan, cell)

            execution = Execution(
                target,
                folder / "notebooks",
                progress.on_cell,
                environment,
                on_cell_end=on_cell_end,
                variables_of=lambda plan: variables(by_name[plan.name]),
            )
            try:
                for plan, _ in execution.run(runnable, jobs):
                    verdicts[plan.name] = _verdict(plan, folder)
                    so_far.on_end(verdicts[plan.name])
                    progress.on_end(verdicts[plan.name])
                    _keep_time(execution, plan, verdicts[plan.name])
            except KeyboardInterrupt:
                interrupted = True
    except ImportHangs as error:
        known = explanation(by_id("import-hung"), N_("the import"), target.device)
        verdicts |= {plan.name: replace(not_run(plan, "missing", str(error)), explanations=(known,)) for plan in runnable}
    ordered = tuple(verdicts.get(name) or _verdict(each.plan, folder) for name, each in by_name.items())
    result = Result(target, ordered, time.monotonic() - started, folder)
    report.write(result)
    return Outcome(result, interrupted)


def _keep_time(execution: Execution, plan: Plan, verdict: Verdict) -> None:
    """Keep how long a notebook took that is green."""
    if verdict.outcome == "passed":
        execution.keep_time(plan, verdict.seconds)


def _verdict(plan: Plan, folder: Path) -> Verdict:
    if executed_of(plan, folder).exists():
        return judge(plan, finish(plan, folder))
    return not_run(plan, "missing", N_("interrupted before it started"))


@contextmanager
def kernel_environment(device: str, cold: bool = False, begun: Started | None = None) -> Iterator[dict[str, str]]:
    """The variables of the kernels: where a fork is safe those of a fork server, which ends with the block.

    begun: a fork server that was started before; it ends when its own block does.
    Raises ImportHangs when the fork server does not import Paddle and PaddleNLP within IMPORT_SECONDS.
    """
    with nullcontext(begun) if begun else fork_server.started(device, cold) as started:
        inherited = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}  # another notebook's
        inherited |= {warm.RUN_FOLDER: str(started.folder)}
        if cold or started.address is None or not (started.server is None or _is_ready(started.server)):
            yield inherited
        else:
            yield warm_kernels.environment(started, inherited)


def _is_ready(server: warm.ForkServer) -> bool:
    """Wait until it has imported everything, so that this counts for no notebook's time; False when it cannot.

    Raises ImportHangs, with the place where it hangs, when it takes too long.
    """
    try:
        return warm.answers(server.address, IMPORT_SECONDS)
    except warm.ForkServerGone:  # a broken installation: each notebook shows the error itself
        return False
    except TimeoutError as error:
        where = server.where_it_imports()
        late = N_(f"importing Paddle and PaddleNLP did not end within {IMPORT_SECONDS:.0f} s")
        late += f", {where}" if where else ""
        raise ImportHangs(N_(f"{late}; `xpulab doctor` shows cause and remedy")) from error


def prepare(folder: Path) -> None:
    """Make the folder for a run. Raises InputError when it holds another run or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(_holds_something(folder / name) for name in _OF_ANOTHER_RUN):
            raise InputError(
                N_(f"{folder}: holds another run; name another folder with --out, remove that one, or go on with it: --resume")
            )
        (folder / "notebooks").mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(N_(f"{folder}: cannot be written: {error.strerror}; name another folder with --out")) from error


def _holds_something(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty: a run that was killed in `prepare` leaves an empty one."""
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _skipped(plan: Plan, target: Target) -> Verdict | None:
    if plan.cards <= target.cards or target.device == "cpu":  # ranks are processes there
        return None
    return not_run(plan, "skipped", N_(f"it needs {plan.cards} cards, and --cards allows {target.cards}"))
