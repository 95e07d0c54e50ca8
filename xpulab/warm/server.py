"""The process behind xpulab.warm.ForkServer: imports, then forks. It runs in one thread and has touched no device."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import os
import pickle
import select
import selectors
import shutil
import signal
import socket
import sys
from dataclasses import dataclass

from xpulab.child import SHOW_STACK, end_with_parent
from xpulab.warm import protocol, worker


def main(arguments: list[str]) -> None:
    """Import, serve, and in each worker run its request; arguments as xpulab.warm.ForkServer gives them."""
    folder, listener, keepalive, starter, *preload = arguments
    sys.path.pop()  # this package has been found; its modules need it no longer
    os.chdir(folder)  # Paddle opens a log file in the working folder when it is imported
    before = dict(os.environ)
    _import(preload, int(keepalive), folder)
    imports = worker.AfterImports.since(before)
    request = _Server(socket.socket(fileno=int(listener)), int(keepalive), int(starter)).serve()
    if request is None:
        shutil.rmtree(folder, ignore_errors=True)  # the starter does it too, unless it was killed
    else:
        worker.run(request, imports)


def _import(preload: list[str], keepalive: int, folder: str) -> None:
    """Import the modules; when the starter ends meanwhile, the keep-alive pipe raises SIGIO, and this process ends."""

    def end(*_: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGIO, end)
    faulthandler.register(SHOW_STACK, all_threads=False)
    flags = fcntl.fcntl(keepalive, fcntl.F_GETFL)
    fcntl.fcntl(keepalive, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(keepalive, fcntl.F_SETFL, flags | os.O_ASYNC)
    for name in preload:
        if select.select([keepalive], [], [], 0)[0]:
            end()
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no collection in a worker writes into, and so copies, the pages that all share
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    faulthandler.unregister(SHOW_STACK)
    fcntl.fcntl(keepalive, fcntl.F_SETFL, flags)


@dataclass
class _Requester:
    """A connection and, once a worker was forked for it, that worker; status as subprocess.Popen has it."""

    connection: socket.socket
    pid: int | None = None
    status: int | None = None


class _Server:
    """Waits for requests, signals and ends; no requester can make it wait."""

    def __init__(self, listener: socket.socket, keepalive: int, starter: int) -> None:
        self._listener = listener
        self._listener.setblocking(False)
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._ending = False
        self._descriptors = [keepalive]
        self._requesters: dict[int, _Requester] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._note_ends)
        self._selector.register(keepalive, selectors.EVENT_READ, self._end)
        try:  # a process that the starter forked may still hold a copy of the keep-alive pipe's other end
            pidfd = os.pidfd_open(starter)
        except OSError:  # older than Linux 5.3, or the starter has ended: the keep-alive pipe alone must do
            pass
        else:
            self._descriptors.append(pidfd)
            self._selector.register(pidfd, selectors.EVENT_READ, self._end)

    def serve(self) -> protocol.Request | None:
        """Serve until the starter ends, then None; returns in each worker too, with its request."""
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
        for requester in list(self._requesters.values()):
            self._forget(requester)
        return None

    def _end(self, *_: object) -> None:
        self._ending = True

    def _accept(self, _: object) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        connection.setblocking(False)
        self._requesters[connection.fileno()] = _Requester(connection)
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _note_ends(self, _: object) -> None:
        """A signal has come: send ENDED for each worker that has ended. It stays a zombie until its requester closes."""
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        for requester in self._requesters.values():
            if requester.pid is None or requester.status is not None:
                continue
            ended = os.waitid(os.P_PID, requester.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                requester.status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                with contextlib.suppress(OSError):  # it has closed; the selector reports that next
                    requester.connection.send(protocol.packet(protocol.ENDED, requester.pid, requester.status))

    def _read(self, connection: socket.socket) -> protocol.Request | None:
        requester = self._requesters[connection.fileno()]
        try:
            received, fds, _, _ = socket.recv_fds(connection, protocol.PACKET_BYTES, 3)
        except BlockingIOError:
            return None
        except OSError:
            received, fds = b"", []
        try:
            kind, numbers = protocol.parse(received)
            if kind == protocol.FORK and requester.pid is None and len(fds) == 3:
                return self._fork(requester, *fds)
            if kind in (protocol.SIGNAL, protocol.GROUP) and requester.pid is not None:
                _signal(requester.pid, numbers[0], group=kind == protocol.GROUP)
            else:
                self._forget(requester)
        finally:
            for fd in fds:
                os.close(fd)
        return None

    def _fork(self, requester: _Requester, request: int, stdout: int, stderr: int) -> protocol.Request | None:
        server = os.getpid()
        everything = signal.valid_signals()
        signal.pthread_sigmask(signal.SIG_BLOCK, everything)  # so that none reaches a worker that still has our handlers
        try:
            pid = os.fork()
        except OSError as error:
            requester.connection.send(protocol.packet(protocol.REFUSED, error.errno or 0))
            pid = -1
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
            requester.pid = pid if pid > 0 else None
            return None
        end_with_parent()
        if os.getppid() != server:
            os._exit(1)
        os.setsid()
        for number, fd in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
            os.dup2(fd, number)
        with open(request, "rb", closefd=False) as file:
            asked = pickle.loads(file.read())
        worker.default_signals()
        requester.connection.send(protocol.packet(protocol.STARTED, os.getpid()))
        self._release()
        return asked

    def _release(self) -> None:
        """In a worker: close what belongs to the server, each by its owner, so that no destructor closes the number again."""
        self._selector.close()
        connections = [requester.connection for requester in self._requesters.values()]
        for held in (self._listener, self._wake, self._waker, *connections):
            held.close()
        self._requesters.clear()
        for fd in self._descriptors:
            os.close(fd)

    def _forget(self, requester: _Requester) -> None:
        """Kill what is left of the worker's group, reap the worker, close the connection."""
        self._selector.unregister(requester.connection)
        del self._requesters[requester.connection.fileno()]
        if requester.pid is not None:
            _signal(requester.pid, signal.SIGKILL, group=True)
            _, _, used = os.wait4(requester.pid, 0)
            microseconds = round((used.ru_utime + used.ru_stime) * 1e6)
            with contextlib.suppress(OSError):  # its requester has closed or ended
                requester.connection.send(protocol.packet(protocol.REAPED, requester.pid, microseconds))
        requester.connection.close()


def _signal(pid: int, number: int, group: bool) -> None:
    try:
        (os.killpg if group else os.kill)(pid, number)
    except ProcessLookupError:
        if group:  # it does not lead a group yet, and is all of it; a zombie ignores the signal
            os.kill(pid, number)
    except (PermissionError, ValueError, OSError):  # a worker that changed its user, a number that is no signal
        return
