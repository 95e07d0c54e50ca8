"""One run from plans to reports: execute, judge as notebooks end, report what there is, whatever happened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from xpulab import warm
from xpulab.devices import wheel_device
from xpulab.doctor.remedies import by_id
from xpulab.errors import InputError
from xpulab.harness import report
from xpulab.harness.execute import Execution, Target
from xpulab.harness.explain import explanation
from xpulab.harness.judge import Verdict, judge, not_run
from xpulab.harness.plan import Plan
from xpulab.harness.progress import progress_on
from xpulab.harness.report.result import Result
from xpulab.warm import kernels as warm_kernels

IMPORT_SECONDS = 120.0
"""How long the imports of Paddle and PaddleNLP may take, once for all notebooks."""

_OF_ANOTHER_RUN = ("result.json", "notebooks", "soak.jsonl")
"""What a folder for reports must not hold."""


class ImportHangs(InputError):
    """Paddle or PaddleNLP cannot be imported within IMPORT_SECONDS: no notebook could run."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: its result, whose reports are written, and whether it was interrupted before its end."""

    result: Result
    interrupted: bool


def run(plans: Sequence[Plan], target: Target, jobs: int, folder: Path, console: Console, cold: bool = False) -> Outcome:
    """Run the notebooks, `jobs` at a time, and write the reports into the folder, which `prepare` made.

    cold: every kernel imports everything itself; otherwise kernels are forked from a process that has, where that is safe.

    A notebook that needs more cards than there are is skipped, with the reason. On Ctrl-C what runs is stopped, and what
    has finished is reported. When Paddle's import hangs, no notebook is run, and the reports say so.
    """
    nothing_runs = all(_skipped(plan, target) for plan in plans)
    return run_in(kernel_environment(target.device, cold or nothing_runs), plans, target, jobs, folder, console)


def run_in(
    kernels: AbstractContextManager[Mapping[str, str]],
    plans: Sequence[Plan],
    target: Target,
    jobs: int,
    folder: Path,
    console: Console,
) -> Outcome:
    """As `run`, with kernels that have the variables which the context `kernels` gives, in the form of kernel_environment."""
    started = time.monotonic()
    verdicts = {plan.name: too_few for plan in plans if (too_few := _skipped(plan, target))}
    runnable = [plan for plan in plans if plan.name not in verdicts]
    interrupted = False
    notebooks = folder / "notebooks"
    try:
        with progress_on(console, runnable) as progress, kernels as environment:
            execution = Execution(target, notebooks, progress.on_cell, environment)
            try:
                for plan, executed in execution.run(runnable, jobs):
                    verdicts[plan.name] = judge(plan, executed)
                    progress.on_end(verdicts[plan.name])
            except KeyboardInterrupt:
                interrupted = True
    except ImportHangs as error:
        known = explanation(by_id("import-hung"), "the import", target.device)
        verdicts |= {plan.name: replace(not_run(plan, "missing", str(error)), explanations=(known,)) for plan in runnable}
    ordered = tuple(verdicts.get(plan.name) or _unfinished(plan, notebooks) for plan in plans)
    result = Result(target, ordered, time.monotonic() - started, folder)
    report.write(result)
    return Outcome(result, interrupted)


@contextmanager
def kernel_environment(device: str, cold: bool = False) -> Iterator[dict[str, str]]:
    """The variables of the kernels: where a fork is safe those of a fork server, which ends with the block.

    On a GPU or an XPU it was never measured that a fork is safe, so kernels start cold there.
    Raises ImportHangs when the fork server does not import Paddle and PaddleNLP within IMPORT_SECONDS.
    """
    without_server = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}  # another notebook's
    if cold or wheel_device(device) != "cpu":
        yield without_server
        return
    with warm.ForkServer() as server:
        yield warm_kernels.environment(server, os.environ) if _is_ready(server) else without_server


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
        message = f"importing Paddle and PaddleNLP did not end within {IMPORT_SECONDS:.0f} s{f', {where}' if where else ''}"
        raise ImportHangs(f"{message}; `xpulab doctor` shows cause and remedy") from error


def prepare(folder: Path) -> None:
    """Make the folder for a run. Raises InputError when it holds another run or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any((folder / name).exists() for name in _OF_ANOTHER_RUN):
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
