"""The process behind xpulab.warm.ForkServer: imports, then forks. It runs in one thread and has touched no device.

multiprocessing's own fork server cannot stand here. Only the process that started it, and what is forked from that, can use it;
here a Jupyter tool, its kernels and the runs of a selftest find one server by its address. Its children have the server's
environment and output, they live on when the process that asked for them is killed, what they started is never killed, and a
preload that fails is ignored.

A requester opens one connection (multiprocessing.connection) for each worker:

    requester -> worker   two file descriptors, standard output and error; then the Request
    worker -> requester   ("started", its pid)
    server -> requester   ("ended", exit status as subprocess.Popen has it)
    requester -> server   the end of what it sends: kill the worker's group, reap the worker, close
    server -> requester   ("reaped", processor seconds of the worker and of the processes that it waited for)

The server never reads a request, so no requester can make it wait. It reaps a worker only on request, so until then the
worker's process id is no other process's.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

from xpulab.child import SHOW_STACK, end_with_parent, signal_group
from xpulab.warm import worker


def main(folder: str, listener: str, keepalive: str, *preload: str) -> None:
    """Import, and serve until the keep-alive pipe is closed: at ForkServer.close(), and at the end of its process."""
    del sys.path[0]  # this package has been found; its modules need it no longer
    os.chdir(folder)  # Paddle opens a log file in the working folder when it is imported
    before = dict(os.environ)
    _import(preload, int(keepalive))
    _serve(socket.socket(fileno=int(listener)), int(keepalive), worker.AfterImports.since(before))
    shutil.rmtree(folder, ignore_errors=True)  # the starter does it too, unless it was killed


def _import(preload: tuple[str, ...], keepalive: int) -> None:
    """Import the modules; when the keep-alive pipe is closed meanwhile, SIGIO ends this process wherever it is."""
    faulthandler.register(SHOW_STACK, all_threads=False)
    flags = fcntl.fcntl(keepalive, fcntl.F_GETFL)
    fcntl.fcntl(keepalive, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(keepalive, fcntl.F_SETFL, flags | os.O_ASYNC)
    if _is_closed(keepalive):
        os._exit(0)
    for name in preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no collection in a worker writes into, and so copies, the pages that all share
    fcntl.fcntl(keepalive, fcntl.F_SETFL, flags)
    faulthandler.unregister(SHOW_STACK)


def _is_closed(pipe: int) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


@dataclass
class _Requester:
    """The connection of a worker; status is set when the worker has ended."""

    connection: Connection
    pid: int
    status: int | None = None


def _serve(listener: socket.socket, keepalive: int, imports: worker.AfterImports) -> None:
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requesters: dict[int, _Requester] = {}
    poll = select.poll()
    for watched in (listener.fileno(), woken, keepalive):
        poll.register(watched, select.POLLIN)
    while not _is_closed(keepalive):
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                if forked := _fork(listener, imports):
                    requesters[forked.connection.fileno()] = forked
                    poll.register(forked.connection.fileno(), select.POLLRDHUP)
            elif fd == woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                for requester in requesters.values():
                    _note_end(requester)
            elif fd in requesters:
                poll.unregister(fd)
                _forget(requesters.pop(fd))
    for requester in requesters.values():
        _forget(requester)


def _fork(listener: socket.socket, imports: worker.AfterImports) -> _Requester | None:
    """Fork a worker for the next requester; None when that cannot be done. In the worker this does not return."""
    server = os.getpid()
    connection = Connection(listener.accept()[0].detach())
    everything = signal.valid_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)  # so that none reaches a worker that still has our handlers
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        end_with_parent()
        if os.getppid() == server:
            worker.run(connection, imports)
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
    if pid < 0:
        connection.close()
        return None
    return _Requester(connection, pid)


def _note_end(requester: _Requester) -> None:
    """Send the status of a worker that has ended. It stays a zombie until its requester closes."""
    if requester.status is None and (ended := os.waitid(os.P_PID, requester.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)):
        requester.status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        _send(requester, "ended", requester.status)


def _forget(requester: _Requester) -> None:
    """Kill what is left of the worker's group, reap the worker, close the connection."""
    if not signal_group(requester.pid, signal.SIGKILL):  # it does not lead a group yet, and is all of it
        os.kill(requester.pid, signal.SIGKILL)
    _, _, used = os.wait4(requester.pid, 0)
    _send(requester, "reaped", used.ru_utime + used.ru_stime)
    requester.connection.close()


def _send(requester: _Requester, kind: str, number: float) -> None:
    with contextlib.suppress(OSError):  # it has closed or ended; the selector reports that next
        requester.connection.send((kind, number))
