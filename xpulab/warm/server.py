"""The process behind xpulab.warm.ForkServer: imports, then forks. It runs in one thread and has touched no device.

multiprocessing's own fork server cannot stand here. Only the process that started it, and what is forked from that, can use it;
here a Jupyter tool, its kernels and the runs of a selftest find one server by its address. Its children have the server's
environment and output, they live on when the process that asked for them is killed, and what they started is never killed.

A requester opens one connection (multiprocessing.connection) for each worker. The server forks a supervisor for it, and that
forks the worker:

    requester -> supervisor   two file descriptors, standard output and error; then the Request
    supervisor -> requester   the worker's pid
    requester -> supervisor   the end of what it sends: kill the worker's group
    supervisor -> requester   the exit status of the worker as subprocess.Popen has it
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import select
import shutil
import signal
import socket
import sys
from multiprocessing.connection import Connection

from xpulab.child import end_with_parent, signal_group
from xpulab.warm import READY, worker

_NO_SIGNAL = 0


def main(folder: str, listener: str, keepalive: str, *preload: str) -> None:
    """Import, and serve until the keep-alive pipe is closed: at ForkServer.close(), and at the end of its process."""
    del sys.path[0]  # this package has been found; its modules need it no longer
    os.chdir(folder)  # Paddle opens a log file in the working folder when it is imported
    before = dict(os.environ)
    end_with_parent()
    if select.select([int(keepalive)], [], [], 0)[0]:  # it has ended already
        return
    for name in preload:
        importlib.import_module(name)
    end_with_parent(_NO_SIGNAL)  # from here on the pipe says it
    _close_log_files()
    gc.collect()
    gc.freeze()  # no collection in a worker writes into, and so copies, the pages that all share
    open(READY, "w").close()
    _serve(socket.socket(fileno=int(listener)), int(keepalive), worker.AfterImports.since(before))
    shutil.rmtree(folder, ignore_errors=True)  # the starter does it too, unless it was killed


def _close_log_files() -> None:
    """Those that imports have opened: a worker opens its own, in its working folder, when something is logged."""
    for handler in worker.log_handlers():
        if isinstance(handler, logging.FileHandler):
            handler.close()
            handler.baseFilename = os.path.basename(handler.baseFilename)


def _serve(listener: socket.socket, keepalive: int, imports: worker.AfterImports) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    server = os.getpid()
    while keepalive not in select.select([listener.fileno(), keepalive], [], [])[0]:
        connection = Connection(listener.accept()[0].detach())
        with connection, contextlib.suppress(OSError):  # a fork that is not possible closes the connection
            if os.fork() == 0:
                end_with_parent()
                if os.getppid() == server:
                    listener.close()
                    with contextlib.suppress(EOFError, OSError):  # the requester has ended, or asked for nothing
                        _supervise(connection, keepalive, imports)
                os._exit(0)
    with contextlib.suppress(ChildProcessError):  # raised when all have ended
        while True:
            os.wait()


def _reap(*_: object) -> None:
    """Wait for the supervisors that have ended: their processor time counts as this process' children's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(connection: Connection, keepalive: int, imports: worker.AfterImports) -> None:
    """Fork the worker, and see it to its end: by itself, or when its requester or the server ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as requester:
        _, outputs, _, _ = socket.recv_fds(requester, 1, 2)
    request = connection.recv()
    supervisor = os.getpid()
    everything = signal.valid_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)  # so that none reaches a worker that still has our handlers
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        if os.getppid() == supervisor:
            worker.run(request, outputs, imports)
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
    for output in outputs:
        os.close(output)
    connection.send(pid)
    select.select([connection.fileno(), os.pidfd_open(pid), keepalive], [], [])
    if not signal_group(pid, signal.SIGKILL):  # it does not lead a group yet, and is all of it
        os.kill(pid, signal.SIGKILL)
    connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
