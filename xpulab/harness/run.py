"""One run from plans to reports: execute, judge as notebooks end, report what there is, whatever happened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from xpulab import warm
from xpulab.devices import wheel_device
from xpulab.errors import InputError
from xpulab.harness import report
from xpulab.harness.execute import Execution, Target
from xpulab.harness.judge import Verdict, judge, not_run
from xpulab.harness.plan import Plan
from xpulab.harness.progress import progress_on
from xpulab.warm import kernels


@dataclass(frozen=True)
class Outcome:
    """What a run left: the values of result.json, the verdicts, and whether it was interrupted before its end."""

    result: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    interrupted: bool


def run(plans: Sequence[Plan], target: Target, jobs: int, folder: Path, console: Console, cold: bool = False) -> Outcome:
    """Run the notebooks and write the reports into the folder, which `prepare` made.

    cold: every kernel imports everything itself; otherwise they are forked from one process that has, where that is safe.

    A notebook that needs more cards than there are is skipped, with the reason. On Ctrl-C what runs is stopped, and what
    has finished is reported.
    """
    started = time.monotonic()
    verdicts = {plan.name: too_few for plan in plans if (too_few := _skipped(plan, target))}
    runnable = [plan for plan in plans if plan.name not in verdicts]
    interrupted = False
    notebooks = folder / "notebooks"
    with progress_on(console, runnable) as progress, kernel_environment(target.device, cold or not runnable) as environment:
        execution = Execution(target, notebooks, progress.on_cell, environment)
        try:
            for plan, executed in execution.run(runnable, jobs):
                verdicts[plan.name] = judge(plan, executed)
                progress.on_end(verdicts[plan.name])
        except KeyboardInterrupt:
            interrupted = True
    ordered = tuple(verdicts.get(plan.name) or _unfinished(plan, notebooks) for plan in plans)
    result = report.write(ordered, target, time.monotonic() - started, folder)
    return Outcome(result, ordered, interrupted)


@contextmanager
def kernel_environment(device: str, cold: bool = False) -> Iterator[dict[str, str]]:
    """The variables that the kernels find: those of a warm process that is there for the time of the run, where one may be.

    On a GPU or an XPU nobody has measured that a fork is safe, so kernels start cold there.
    """
    cold_ones = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}  # somebody else's, in a notebook
    if cold or wheel_device(device) != "cpu":
        yield cold_ones
        return
    with warm.ForkServer() as parent:
        yield kernels.environment(parent, os.environ) if _is_warm(parent) else cold_ones


def _is_warm(parent: warm.ForkServer) -> bool:
    """Waits until it has imported everything, so that this is on no notebook's clock; False when it cannot."""
    try:
        with warm.fork(parent.address, "builtins:len", b"", environment=os.environ, cwd=".", stdout=1, stderr=2) as child:
            return child.wait() == 0
    except warm.ForkServerGone:  # an installation that is broken: each notebook says so itself
        return False


def prepare(folder: Path) -> None:
    """Make the folder for a run. Raises InputError when it holds another run or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "result.json").exists() or (folder / "notebooks").exists():
            raise InputError(f"{folder}: holds another run; name another folder with --out, or remove that one")
        (folder / "notebooks").mkdir()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error


def _skipped(plan: Plan, target: Target) -> Verdict | None:
    if plan.cards <= target.cards or target.device == "cpu":  # ranks are processes there
        return None
    return not_run(plan, "skipped", f"it needs {plan.cards} cards, and --cards allows {target.cards}")


def _unfinished(plan: Plan, notebooks: Path) -> Verdict:
    executed = notebooks / f"{plan.name}.ipynb"
    return judge(plan, executed) if executed.exists() else not_run(plan, "missing", "interrupted before it started")
