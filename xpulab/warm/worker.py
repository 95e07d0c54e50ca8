"""A worker: a fork of the fork server that takes on the state of a process that was started cold, and runs an entry.

What a worker has of its own, as if it had been started cold: environment, working folder, sys.path (with its PYTHONPATH),
sys.argv, standard output and error, no other open file, default signal handlers, a session, time zone, folder for temporary
files, random state of `random`, numpy and Paddle, Paddle's FLAGS_* that may be set at run time, and the number of threads that
OMP_NUM_THREADS asks for; without it one.

What it does not have: whatever else is read before the first line runs or while a module is imported. Of the environment
that is PYTHONHASHSEED and all other PYTHON* but PYTHONPATH, LD_*, LANG and LC_*, GLOG_* (of Paddle's lines only errors are
shown), FLAGS_* that Paddle only takes at its start, MALLOC_*, CUSTOM_DEVICE_ROOT (xpulab.sim.load loads a plug-in later), and
the folders that libraries keep from their import (HF_HOME, MPLCONFIGDIR, PaddleNLP's below HOME). MPLBACKEND and IPython's and
Jupyter's folders are read when they are used. Warnings that an import prints are only in the fork server's log.
Handlers for SIGSEGV and its like stay as the imports left them (PaddleNLP turns Paddle's off, in a cold process too).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xpulab.warm import Request

_CRASHES = {signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV}


@dataclass(frozen=True)
class AfterImports:
    """What every worker begins with. path: sys.path without the fork server's PYTHONPATH. variables: those that imports set."""

    path: list[str]
    variables: dict[str, str]

    @classmethod
    def since(cls, before: Mapping[str, str]) -> AfterImports:
        """As this process is now; before: its environment before the imports."""
        given = set(_pythonpath())
        changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
        return cls([entry for entry in sys.path if entry not in given], changed)


def run(request: Request, outputs: list[int], imports: AfterImports) -> None:
    """In a fork: run the request, and end as a program does, except that modules are not taken apart.

    outputs: file descriptors of its standard output and error. Taking modules apart would write into, and so copy, all pages
    that the workers share: 0.3 s a worker.
    """
    os.setsid()
    for number, fd in enumerate((os.open(os.devnull, os.O_RDONLY), *outputs)):
        os.dup2(fd, number)
    _default_signals()
    status = 0
    try:
        _become(request, imports)(request.payload)
    except SystemExit as exit:
        status = _status_of(exit)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined] # what Python itself calls; typeshed leaves it out
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or no process reads it
            stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _default_signals() -> None:
    """Handlers and mask as in a new Python process, but those for crashes stay."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _CRASHES - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own choice for every program
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def _become(request: Request, imports: AfterImports) -> Any:
    """Take on the state that was asked for; returns the function to call."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update({**imports.variables, **request.environment})
    os.chdir(request.cwd)
    time.tzset()
    tempfile.tempdir = None
    module, _, function = request.entry.partition(":")
    sys.argv[:] = [module]
    sys.path[:] = [*dict.fromkeys(_pythonpath()), *imports.path]
    sys.modules["__main__"] = types.ModuleType("__main__")
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=stream is sys.stderr or os.isatty(stream.fileno()))
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if "paddle" in sys.modules:
        _renew_paddle()
    if threadpoolctl := sys.modules.get("threadpoolctl"):
        _set_threads(threadpoolctl)
    importlib.invalidate_caches()
    return getattr(importlib.import_module(module), function)


def _pythonpath() -> list[str]:
    return [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def log_handlers() -> list[logging.Handler]:
    """All that exist; the public functions know those of one logger, or those with a name."""
    return [handler for reference in logging._handlerList if (handler := reference())]  # type: ignore[attr-defined]


def _renew_paddle() -> None:
    import paddle
    from paddle.base import core

    core.default_cpu_generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    core.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))  # as paddle.base does when it is imported
    known = core.globals()
    for name, value in os.environ.items():
        if name.startswith("FLAGS_") and known.is_public(name):
            paddle.set_flags({name: _typed(value, known[name])})


def _typed(text: str, like: Any) -> Any:
    """A flag's text as the type of its present value, as gflags reads it."""
    if isinstance(like, bool):
        return text.lower() in ("1", "t", "true", "y", "yes")
    return type(like)(text)


def _set_threads(threadpoolctl: types.ModuleType) -> None:
    """As OMP_NUM_THREADS says; where it says nothing one, which Paddle then writes into the variable."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    threadpoolctl.threadpool_limits(int(wanted) if wanted.isdigit() and int(wanted) > 0 else 1)
    if "paddle" in sys.modules:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _status_of(exit: SystemExit) -> int:
    if exit.code is None or isinstance(exit.code, int):
        return (exit.code or 0) & 0xFF
    print(exit.code, file=sys.stderr)
    return 1
