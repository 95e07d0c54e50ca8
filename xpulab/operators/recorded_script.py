"""The process in which a user's script runs until a step is recorded and compared; started by xpulab.operators.command.

    python recorded_script.py JOB.json

The job: script, arguments, device, step, and the path of the result. The script runs as it would with `python SCRIPT ARGS`. Its
process ends inside the optimizer's step: nothing of the script runs afterwards.
"""

from __future__ import annotations

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
    sys.path.insert(0, str(Path(job["script"]).resolve().parent))
    steps = Steps(job)
    sys.meta_path.insert(0, AfterImport("paddle", steps.install))
    try:
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as ended:
        write(job, {"status": "ended", "steps": steps.taken, "detail": f"it ended with exit code {ended.code}"})
    except BaseException as error:
        write(job, {"status": "raised", "steps": steps.taken, "detail": describe(error)})
    else:
        write(job, {"status": "ended", "steps": steps.taken, "detail": "it ended"})


class Steps:
    """Counts the steps of all optimizers, records one, compares it and ends the process."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.taken = 0
        self._job = job
        self._inside = False
        self._found: list[Any] = []
        self._recorder: ExitStack | None = None

    def install(self, paddle: ModuleType) -> None:
        """Select the device, and count the steps of every class of optimizers, also of those that are defined later."""
        paddle.set_device(self._job["place"])
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

    def _counted(self, method: Callable) -> Callable:
        def step(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return method(*arguments, **named)
            self._inside = True
            try:
                result = method(*arguments, **named)
            finally:
                self._inside = False
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
    """Write the result where the parent process expects it."""
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")


def describe(error: BaseException) -> str:
    """The error in one line, with the last place outside of installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(name in frame.filename for name in ("site-packages", "<frozen", __file__))]
    place = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"it raised {type(error).__name__}: {' '.join(str(error).split())[-300:]}{place}"


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
