"""The process in which a user's script runs until a step is recorded and compared; started by xpulab.operators.command.

    python recorded_script.py JOB.json

The job: a Request of command.py, and the path of the result. The script runs as it would with `python SCRIPT ARGS`, as one
process: what paddle.distributed.spawn would start runs here. It ends inside the optimizer's step: nothing of the script runs
afterwards.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any


def main(path: str) -> None:
    """Run the script of this job. Writes the result, or why there is none."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.argv = [job["script"], *job["arguments"]]
    sys.path.insert(0, str(Path.cwd() if job["is_module"] else Path(job["script"]).resolve().parent))
    steps = Steps(job)
    sys.meta_path.insert(0, AfterImport("paddle", steps.install))
    try:
        if job["is_module"]:
            runpy.run_module(job["script"], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as ended:
        write(job, {"status": "ended", "steps": steps.taken, "detail": f"it ended with exit code {ended.code}"})
    except BaseException as error:
        show_own(error)
        write(job, {"status": "raised", "steps": steps.taken, "detail": describe(error)})
    else:
        write(job, {"status": "ended", "steps": steps.taken, "detail": "it ended"})


class Steps:
    """Counts the steps of the first optimizer, records one with those of others in it, compares it and ends the process."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.taken = 0
        self._job = job
        self._inside = False
        self._counts: Any = None
        self._found: list[Any] = []
        self._recorder: ExitStack | None = None

    def install(self, paddle: ModuleType) -> None:
        """Select the device, and count the steps of every class of optimizers, also of those that are defined later."""
        importlib.import_module("xpulab.operators.recorder")  # before the script replaces operators
        paddle.set_device(self._job["place"])
        if self._job["is_eager"]:
            paddle.jit.enable_to_static(False)
        paddle.distributed.spawn = lambda func, args=(), *_others, **_named: func(*args)
        executor = paddle.static.Executor
        executor.run = self._counted(executor.run, is_program=True)
        optimizer = paddle.optimizer.Optimizer
        for kind in list(vars(paddle.optimizer).values()):
            if isinstance(kind, type) and issubclass(kind, optimizer):
                self._watch(kind)
        optimizer.__init_subclass__ = classmethod(self._watch)
        self._begin_if_next()

    def _watch(self, kind: type) -> None:
        """Count the steps of this class of optimizers; a step within a step is the same one."""
        for name in ("step", "minimize"):
            if callable(method := vars(kind).get(name)):
                setattr(kind, name, self._counted(method))

    def _counted(self, method: Callable, is_program: bool = False) -> Callable:
        """The method of an optimizer, or of an executor of programs, which counts as a step when it fetches something."""

        def step(*arguments: Any, **named: Any) -> Any:
            is_step = bool(named.get("fetch_list") or arguments[3:4]) if is_program else sys.modules["paddle"].in_dynamic_mode()
            if self._inside or not is_step:
                return method(*arguments, **named)
            if is_program and self._job["wants"] == "operators":
                write(self._job, {"status": "static"})
                os._exit(0)
            self._inside = True
            try:
                result = method(*arguments, **named)
            finally:
                self._inside = False
            self._counts = self._counts or arguments[0]
            if arguments[0] is not self._counts:
                return result
            self.taken += 1
            if self._recorder:
                finish(self._job, self._recorder, self._found)
            self._begin_if_next()
            return result

        return step

    def _begin_if_next(self) -> None:
        if self.taken == self._job["step"] - 1:
            from xpulab.operators import kernel_log, recorder

            recording = kernel_log.logged() if self._job["wants"] == "kernels" else recorder.recording(recorder.BUDGET)
            self._recorder = ExitStack()
            self._found = self._recorder.enter_context(recording)


def finish(job: dict[str, Any], recorder: ExitStack, found: list[Any]) -> None:
    """Compare what was recorded, or list the kernels; write the result and end this process. found: filled by the end of it."""
    try:
        recorder.close()
        if job["wants"] == "kernels":
            from xpulab.operators.prediction import kernels_here

            report = kernels_here(found, job["device"])
        else:
            import paddle

            from xpulab.operators.table import findings

            paddle.set_device(job["place"])
            report = findings(tuple(found), job["device"])
        write(job, {"status": "done", **report})
    except BaseException as error:
        write(job, {"status": "failed", "detail": "".join(traceback.format_exception(error))})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def write(job: dict[str, Any], result: dict[str, Any]) -> None:
    """Write the result where the parent process expects it, unless a process that the script started has written one."""
    if not Path(job["result"]).exists():
        Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")


def is_own(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is of the script, and neither of what runs it nor of what records it."""
    return not frame.filename.startswith(("<frozen", str(Path(__file__).parent), runpy.__file__))


def show_own(error: BaseException) -> None:
    """Print the script's own traceback, as Python would without the recorder."""
    shown: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    chain = shown
    while chain:
        chain.stack[:] = [frame for frame in chain.stack if is_own(frame)]
        chain = chain.__cause__ or chain.__context__
    print("".join(shown.format() if shown else []), file=sys.stderr, end="", flush=True)


def describe(error: BaseException) -> str:
    """The error in one line, with the last place outside of installed packages."""
    own = [
        frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame) and "site-packages" not in frame.filename
    ]
    place = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"it raised {type(error).__name__}: {' '.join(str(error).split())[:200]}{place}"


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module once, after its import: the script sets its environment before it imports Paddle."""

    def __init__(self, name: str, function: Callable[[ModuleType], None]) -> None:
        self._name, self._function, self._done = name, function, False

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """As importlib finds the module, with a loader that calls the function."""
        if fullname != self._name or self._done:
            return None
        self._done = True
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute, function = spec.loader.exec_module, self._function

        def executed(module: ModuleType) -> None:
            execute(module)
            function(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


if __name__ == "__main__":
    sys.path[:1] = []  # this folder: its modules must not take the place of others with their names
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    main(sys.argv[1])
