"""The process behind xpulab.warm.ForkServer: imports, then forks. It runs in one thread and has touched no device.

What a child has of its own, as if it had been started cold: environment, working folder, sys.path (with its PYTHONPATH),
sys.argv, standard output and error, no other open file, default signal handlers, a session, time zone, locale of text
(LC_CTYPE), folder for temporary files, random state of `random`, numpy and Paddle, Paddle's FLAGS_* that may be set at run
time, and the number of threads that OMP_NUM_THREADS and OPENBLAS_NUM_THREADS ask for.

What it does not have: whatever else is read before the first line runs or while a module is imported. Of the environment
that is PYTHONHASHSEED and all other PYTHON* but PYTHONPATH, LD_*, GLOG_* (of Paddle's lines only errors are shown), FLAGS_*
that Paddle only takes at its start, MALLOC_*, CUSTOM_DEVICE_ROOT (xpulab.sim.load loads a plug-in later), and the folders
that libraries keep from their import (HF_HOME, MPLCONFIGDIR, PaddleNLP's below HOME). MPLBACKEND and IPython's and
Jupyter's folders are read when they are used. Warnings that an import prints are in the parent's log and nowhere else.
Handlers for SIGSEGV and its like stay as the imports left them (PaddleNLP turns Paddle's off, in a cold process too).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import locale
import logging
import os
import pickle
import random
import select
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import types
from dataclasses import dataclass
from typing import Any

_PR_SET_PDEATHSIG = 1
_PACKET_BYTES = 64
_CRASHES = {signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV}
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Import, serve, and in each child run what was asked for; arguments as xpulab.warm.ForkServer gives them."""
    folder, listener, held_open, starter, *preload = arguments
    sys.path.pop()  # this package has been found; its modules need it no longer
    os.chdir(folder)  # Paddle opens a log file in the working folder when it is imported
    before = dict(os.environ)
    _import(preload, int(held_open), folder)
    start = _Start(
        path=_without_pythonpath(sys.path),
        variables={name: value for name, value in os.environ.items() if before.get(name) != value},
    )
    request = _Server(socket.socket(fileno=int(listener)), int(held_open), int(starter)).serve()
    if request is None:
        shutil.rmtree(folder, ignore_errors=True)  # the starter does it too, unless it was killed
        return
    _run(request, start)


@dataclass(frozen=True)
class _Start:
    """What every child begins with: sys.path without the parent's PYTHONPATH, the variables that imports have set."""

    path: list[str]
    variables: dict[str, str]


def _run(request: dict[str, Any], start: _Start) -> None:
    """In a child: run what was asked for, and end as a program does, except that modules are not taken apart.

    That would write into, and so copy, all pages that the children share: 0.3 s a child.
    """
    status = 0
    try:
        _become(request, start)(request["payload"])
    except SystemExit as exit:
        status = _status_of(exit)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _status_of(exit: SystemExit) -> int:
    if exit.code is None or isinstance(exit.code, int):
        return (exit.code or 0) & 0xFF
    print(exit.code, file=sys.stderr)
    return 1


def _import(preload: list[str], held_open: int, folder: str) -> None:
    """Import the modules; when the starter ends meanwhile, a SIGIO says so, and this process ends."""

    def end(*_: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGIO, end)
    flags = fcntl.fcntl(held_open, fcntl.F_GETFL)
    fcntl.fcntl(held_open, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(held_open, fcntl.F_SETFL, flags | os.O_ASYNC)
    for name in preload:
        if select.select([held_open], [], [], 0)[0]:
            end()
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no collection in a child writes into, and so copies, the pages that all share
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(held_open, fcntl.F_SETFL, flags)


@dataclass
class _Job:
    """A connection and, once it has asked for one, its child; status as subprocess.Popen has it."""

    connection: socket.socket
    pid: int | None = None
    status: int | None = None


class _Server:
    """Waits for requests, signals and ends; nothing that a requester does or leaves undone makes it wait."""

    def __init__(self, listener: socket.socket, held_open: int, starter: int) -> None:
        self._listener = listener
        self._listener.setblocking(False)
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._ending = False
        self._own = [held_open]
        self._jobs: dict[int, _Job] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
        self._selector.register(held_open, selectors.EVENT_READ, self._end)
        try:  # a copy of the held_open's other end may live on in a process that the starter forked
            pidfd = os.pidfd_open(starter)
        except OSError:  # the held_open alone must do
            pass
        else:
            self._own.append(pidfd)
            self._selector.register(pidfd, selectors.EVENT_READ, self._end)

    def serve(self) -> dict[str, Any] | None:
        """Serve until the starter ends, then None; returns in each child too, with what it was asked for."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        while not self._ending:
            for key, _ in self._selector.select():
                request = key.data(key.fileobj)
                if request is not None:
                    return request
        for job in list(self._jobs.values()):
            self._forget(job)
        return None

    def _end(self, *_: object) -> None:
        self._ending = True

    def _accept(self, _: object) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        connection.setblocking(False)
        self._jobs[connection.fileno()] = _Job(connection)
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _woken(self, _: object) -> None:
        try:
            self._wake.recv(4096)
        except BlockingIOError:
            return
        for job in self._jobs.values():
            if job.pid is not None and job.status is None:
                self._look_at(job)

    def _look_at(self, job: _Job) -> None:
        """Tell the requester when its child has ended; the child stays a zombie until the requester hangs up."""
        ended = os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return
        job.status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with contextlib.suppress(OSError):  # it has hung up; the selector says so next
            job.connection.send(b"ended %d %d" % (job.pid, job.status))

    def _read(self, connection: socket.socket) -> dict[str, Any] | None:
        job = self._jobs[connection.fileno()]
        try:
            packet, fds, _, _ = socket.recv_fds(connection, _PACKET_BYTES, 3)
        except BlockingIOError:
            return None
        except OSError:
            packet, fds = b"", []
        try:
            word, *rest = packet.split() or [b"close"]
            if word == b"fork" and job.pid is None and len(fds) == 3:
                return self._fork(job, *fds)
            if word in (b"signal", b"group") and job.pid is not None:
                _signal(job.pid, int(rest[0]), group=word == b"group")
            else:
                self._forget(job)
        finally:
            for fd in fds:
                os.close(fd)
        return None

    def _fork(self, job: _Job, request: int, stdout: int, stderr: int) -> dict[str, Any] | None:
        server = os.getpid()
        everything = signal.valid_signals()
        signal.pthread_sigmask(signal.SIG_BLOCK, everything)  # so that none reaches a child that still has our handlers
        try:
            pid = os.fork()
        except OSError as error:
            job.connection.send(b"refused 0 %d" % error.errno)
            pid = -1
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
            job.pid = pid if pid > 0 else None
            return None
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        os.setsid()
        for number, fd in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
            os.dup2(fd, number)
        with open(request, "rb", closefd=False) as file:
            asked = pickle.loads(file.read())
        _default_signals()
        job.connection.send(b"started %d" % os.getpid())
        self._let_go()
        return asked

    def _let_go(self) -> None:
        """In a child: close what belongs to the server, each by its owner, so that no destructor closes the number again."""
        self._selector.close()
        for held in (self._listener, self._wake, self._waker, *(job.connection for job in self._jobs.values())):
            held.close()
        self._jobs.clear()
        for fd in self._own:
            os.close(fd)

    def _forget(self, job: _Job) -> None:
        """Kill what is left of the child's group, reap the child, hang up."""
        self._selector.unregister(job.connection)
        del self._jobs[job.connection.fileno()]
        if job.pid is not None:
            _signal(job.pid, signal.SIGKILL, group=True)
            os.waitpid(job.pid, 0)
        job.connection.close()


def _signal(pid: int, number: int, group: bool) -> None:
    try:
        (os.killpg if group else os.kill)(pid, number)
    except ProcessLookupError:
        if group:  # it has not come to lead a group yet, and so is all of it; a zombie does not mind
            os.kill(pid, number)
    except (PermissionError, ValueError, OSError):  # a child that changed its user, a number that is no signal
        return


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _CRASHES - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own choice for every program
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def _become(request: dict[str, Any], start: _Start) -> Any:
    """In a child: take on what was asked for; returns the function to call."""
    _move_log_files(request["cwd"])
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update({**start.variables, **request["environment"]})
    os.chdir(request["cwd"])
    time.tzset()
    _set_locale()
    tempfile.tempdir = None
    module, _, function = request["entry"].partition(":")
    sys.argv[:] = [module]
    given = map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[:] = ["", *dict.fromkeys(given), *start.path]
    sys.modules["__main__"] = types.ModuleType("__main__")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or os.isatty(stream.fileno()))
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if "paddle" in sys.modules:
        _renew_paddle()
    if controls := sys.modules.get("threadpoolctl"):
        _set_threads(controls)
    importlib.invalidate_caches()
    return getattr(importlib.import_module(module), function)


def _set_locale() -> None:
    """As Python does at its start: the environment's, and UTF-8 where that is none (PEP 538)."""
    with contextlib.suppress(locale.Error):  # not installed
        if locale.setlocale(locale.LC_CTYPE, "") not in ("C", "POSIX"):
            return
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")


def _move_log_files(folder: str) -> None:
    """Log files that imports have opened: each child has its own in its working folder, from the first line on."""
    for reference in logging._handlerList:
        handler = reference()
        if isinstance(handler, logging.FileHandler):
            handler.flush()
            if handler.stream is not None:
                handler.stream.close()
                handler.stream = None  # opened again when something is logged
            handler.baseFilename = os.path.join(folder, os.path.basename(handler.baseFilename))


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


def _set_threads(controls: types.ModuleType) -> None:
    """As the libraries would have done at their start; libiomp is Paddle's, which has set it itself.

    Without OMP_NUM_THREADS numpy takes all cores, and what is loaded after Paddle one, since Paddle then sets the variable.
    """
    for library in controls.ThreadpoolController().lib_controllers:
        if library.prefix == "libiomp":
            continue
        own = os.environ.get("OPENBLAS_NUM_THREADS") if library.internal_api == "openblas" else None
        asked = own or os.environ.get("OMP_NUM_THREADS") or ""
        unasked = len(os.sched_getaffinity(0)) if "numpy.libs" in library.filepath else 1
        library.set_num_threads(int(asked) if asked.isdigit() and int(asked) > 0 else unasked)
    if "paddle" in sys.modules:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _without_pythonpath(path: list[str]) -> list[str]:
    given = set(map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))
    return [entry for entry in path if entry not in given]
