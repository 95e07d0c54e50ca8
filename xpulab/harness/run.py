"""One run from plans to reports: execute, judge as notebooks end, report what there is, whatever happened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from rich.console import Console

from xpulab import warm
from xpulab.doctor.meant import LostAccelerator
from xpulab.doctor.remedies import by_id
from xpulab.errors import InputError
from xpulab.harness import fork_server, report, run_file
from xpulab.harness.execute import INTERRUPTED, KILLED, Execution, Target
from xpulab.harness.explain import explanation
from xpulab.harness.fork_server import Started
from xpulab.harness.judge import Verdict, judge, not_ended, not_run
from xpulab.harness.plan import Plan
from xpulab.harness.progress import Progress
from xpulab.harness.report.result import Result
from xpulab.messages import N_
from xpulab.records.record import METADATA_KEY, RED
from xpulab.warm import kernels as warm_kernels

IMPORT_SECONDS = 120.0
"""How long the imports of Paddle and PaddleNLP may take, once for all notebooks."""

_OF_ANOTHER_RUN = ("result.json", "notebooks", run_file.NAME)
"""What a folder for reports must not hold."""

_OF_THE_END = ("KeyboardInterrupt", "NotebookIsRed")
"""Exceptions that are no finding of a cell: Ctrl-C, and the verdict on checks that are red by themselves."""


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
    has finished is reported. When Paddle's import hangs, no notebook is run, and the reports say so.
    Raises InputError, of a run that is resumed, when the folder holds no run, the run of another target, plan, machine or
    version, or one that is under way.
    """
    if resumed:
        run_file.require_same(folder, plans, target)
    else:
        run_file.write(folder, plans, target)
    started, interrupted = time.monotonic(), False
    with run_file.held(folder):
        verdicts = {plan.name: verdict for plan in plans if (verdict := _known(plan, target, folder))}
        left = [plan for plan in plans if plan.name not in verdicts]

        def write_so_far() -> None:
            so_far = tuple(verdicts.get(plan.name) or not_ended(plan) for plan in plans)
            report.write_running(Result(target, so_far, time.monotonic() - started, folder, running=True))

        write_so_far()
        try:
            with kernel_environment(target.device, server) as environment:
                progress = Progress(console)
                execution = Execution(
                    target, folder / "notebooks", progress.on_cell, environment, on_cell_end=progress.on_cell_end
                )
                try:
                    for plan, executed in execution.run(left, jobs):
                        verdicts[plan.name] = judge(plan, executed)
                        progress.on_end(verdicts[plan.name])
                        write_so_far()
                except KeyboardInterrupt:
                    interrupted = True
        except ImportHangs as error:
            known = explanation(by_id("import-hung"), N_("the import"), target.device)
            verdicts |= {plan.name: replace(not_run(plan, "missing", str(error)), explanations=(known,)) for plan in left}
        ended = tuple(verdicts.get(plan.name) or _of_interrupted(plan, folder) for plan in plans)
        result = Result(target, ended, time.monotonic() - started, folder)
        report.write(result)
    return Outcome(result, interrupted)


def holds_run(folder: Path) -> bool:
    """Whether a run was started in the folder: one that was killed before that has left nothing to resume."""
    return (folder / run_file.NAME).exists()


def refuse(plans: Sequence[Plan], target: Target, folder: Path, lost: LostAccelerator) -> Result:
    """Write the reports of a run of which nothing ran: Paddle cannot use the accelerator that this machine is meant to have.

    folder: a new one, which `prepare` made, or that of a run which was interrupted.
    """
    reason = N_("not run: {headline}", headline=lost.headline)
    verdicts = tuple(not_run(plan, "missing", reason) for plan in plans)
    result = Result(target, verdicts, 0.0, folder, lost=lost)
    report.write(result)
    return result


def finished(plans: Sequence[Plan], target: Target, folder: Path) -> Result | None:
    """The result of a run that has ended in this folder; None when there is something left to run or to report."""
    run_file.require_same(folder, plans, target)
    verdicts = tuple(filter(None, (_known(plan, target, folder) for plan in plans)))
    if not report.is_complete(folder) or len(verdicts) < len(plans):
        return None
    return report.of_ended_run(folder, target, verdicts)


def require_finished(plans: Sequence[Plan], target: Target, folder: Path) -> Result:
    """As `finished`; raises InputError where that gives None."""
    result = finished(plans, target, folder)
    if result is None:
        raise InputError(
            N_("{folder}: its run has not ended; go on with it: xpulab run --resume --out {folder}", folder=folder)
        )
    return result


def executed_of(plan: Plan, folder: Path) -> Path:
    """The executed notebook in the folder of a run."""
    return folder / "notebooks" / f"{plan.name}.ipynb"


def _of_interrupted(plan: Plan, folder: Path) -> Verdict:
    executed = executed_of(plan, folder)
    return judge(plan, executed) if executed.exists() else not_run(plan, "missing", N_("interrupted before it started"))


def _known(plan: Plan, target: Target, folder: Path) -> Verdict | None:
    """The verdict on a notebook that is not to run: it needs more cards, or it has a verdict from before an interruption.

    One that was interrupted while everything was green runs again; one that had shown something red stays red.
    """
    if plan.cards > target.cards and target.device != "cpu":  # ranks are processes there
        return not_run(
            plan, "skipped", N_("it needs {cards} cards, and --cards allows {cards2}", cards=plan.cards, cards2=target.cards)
        )
    try:
        executed = nbformat.read(executed_of(plan, folder), as_version=4)
    except (OSError, ValueError, nbformat.ValidationError, AttributeError, KeyError):  # none, or damaged by a power failure
        return None
    verdict = judge(plan, executed_of(plan, folder))
    stopped = executed.metadata.get(METADATA_KEY, {}).get("run", {}).get("stopped")
    was_red = any(record.outcome in RED - {"missing"} for record in verdict.records) or any(map(_has_raised, executed.cells))
    return verdict if was_red or stopped not in (INTERRUPTED, KILLED) else None


def _has_raised(cell: NotebookNode) -> bool:
    """Whether a cell raised; the interruption itself is no finding."""
    return any(output.output_type == "error" and output.ename not in _OF_THE_END for output in cell.get("outputs", []))


@contextmanager
def kernel_environment(device: str, server: Started | None = None) -> Iterator[dict[str, str]]:
    """The variables of the kernels: where a fork is safe those of a fork server.

    server: one that was started before; it ends when its own block does. Without it one is started, and ends with this block.
    Raises ImportHangs when it does not import Paddle and PaddleNLP within IMPORT_SECONDS.
    """
    with nullcontext(server) if server else fork_server.started(device) as started:
        inherited = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}  # another notebook's
        inherited |= {warm.RUN_FOLDER: str(started.folder)}
        if started.address is None or not (started.server is None or _is_ready(started.server)):
            yield inherited
        else:
            yield warm_kernels.environment(started.address, started.folder, inherited)


def _is_ready(server: warm.ForkServer) -> bool:
    """Wait until it has imported everything, so that this counts for no notebook's time; False when it cannot.

    Raises ImportHangs when it takes too long.
    """
    try:
        return warm.answers(server.address, IMPORT_SECONDS)
    except warm.ForkServerGone:  # a broken installation: each notebook shows the error itself
        return False
    except TimeoutError as error:
        late = N_(
            "importing Paddle and PaddleNLP did not end within {IMPORT_SECONDS} s", IMPORT_SECONDS=f"{IMPORT_SECONDS:.0f}"
        )
        raise ImportHangs(N_("{late}; `xpulab doctor` shows cause and remedy", late=late)) from error


def prepare(folder: Path) -> None:
    """Make the folder for a run. Raises InputError when it holds another run or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(_holds_something(folder / name) for name in _OF_ANOTHER_RUN):
            raise InputError(
                N_(
                    "{folder}: holds another run; name another folder with --out, remove that one, or go on with it: --resume",
                    folder=folder,
                )
            )
        (folder / "notebooks").mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            N_(
                "{folder}: cannot be written: {strerror}; name another folder with --out",
                folder=folder,
                strerror=error.strerror,
            )
        ) from error


def _holds_something(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty: a run that was killed in `prepare` leaves an empty one."""
    return any(path.iterdir()) if path.is_dir() else path.exists()
