"""A process that has imported everything once, and forks kernels and ranks from itself.

Importing Paddle and PaddleNLP takes seconds; forking a process that has done it takes milliseconds. Linux only.

    with warm.ForkServer() as parent:
        child = warm.fork(parent.address, "package.module:function", b"payload", environment=os.environ, cwd=".", ...)
        status = child.wait()

What a child shares with a process that was started cold, and what it does not, is in xpulab.warm.server. This module is
imported by a kernel's client, whose start is part of the kernel's: at its top stands nothing that takes time to import.

Requester, server and child speak over a socket of packets, one socket a child:

    requester -> server   fork, with three file descriptors: the pickled request, standard output, standard error
    child -> requester    started PID
    server -> requester   ended PID STATUS, or refused 0 ERRNO when it could not fork
    requester -> server   signal N (to the child), group N (to its process group), close (kill the group, reap, hang up)

The server reaps a child only when its requester has hung up: until then its number belongs to nobody else.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

ADDRESS = "XPULAB_WARM"
"""The environment variable that holds the address of a running parent."""

PRELOAD = (
    "numpy",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "IPython.core.pylabtools",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "psutil",
    "yaml",
    "jsonschema",
    "cloudpickle",
    "threadpoolctl",
    "paddle",
    "paddle.distributed",
    "paddlenlp.transformers",
    "paddlenlp.data",
    "paddlenlp.trainer",
    "paddlenlp.trl",
    "paddlenlp.peft",
    "safetensors",
)
"""What takes long among the imports of the notebooks. Of xpulab nothing: a child runs the sources that are there now."""

_START_SECONDS = 120.0
_END_SECONDS = 10.0
_SOCKET_PATH_BYTES = 90
"""Of a Unix socket's path 107 bytes are allowed; the socket's own name is appended to the folder."""
_PACKET_BYTES = 64


class ForkServerGone(ConnectionError):
    """Nobody answers at the address, the parent could not fork, or it ended before it had started the child."""


class ForkServer:
    """A running parent; ends, with all its children, at close(), at the end of the block, or when this process ends.

    address: where fork() finds it; the path of a socket that only this user may use.
    log: a file with what was printed while it imported; an import that failed ends the parent and stands there.
    It imports in the background: the first fork waits until it is done.
    """

    def __init__(self, preload: Sequence[str] = PRELOAD) -> None:
        import subprocess

        self.folder = _private_folder()
        self.address = os.path.join(self.folder, "socket")
        self.log = os.path.join(self.folder, "log")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(self.log, "wb") as log:
            listener.bind(self.address)
            listener.listen(128)
            read, self._held_open = os.pipe()
            try:
                fds = (listener.fileno(), read)
                command = [sys.executable, "-c", _SERVER, _ROOT, self.folder, *map(str, fds), str(os.getpid()), *preload]
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=_server_environment(),
                    pass_fds=fds,
                    start_new_session=True,
                )
            except BaseException:
                os.close(self._held_open)
                raise
            finally:
                os.close(read)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def close(self) -> None:
        """End the parent and all its children; returns when they are gone."""
        import shutil
        import subprocess

        if self._held_open < 0:
            return
        os.close(self._held_open)
        self._held_open = -1
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def fork(
    address: str,
    entry: str,
    payload: bytes,
    *,
    environment: Mapping[str, str],
    cwd: str | os.PathLike[str],
    stdout: int,
    stderr: int,
    time_limit: float = _START_SECONDS,
) -> Worker:
    """Start entry ("package.module:function") as function(payload) in a new child of the parent at this address.

    environment, cwd: all of the child's environment variables, and its working folder. stdout, stderr: file descriptors.
    time_limit: seconds until the child must have started, the parent's imports included.
    A child that cannot be set up says why on its stderr and exits with 1, as one whose entry raises does.
    Raises ForkServerGone when nobody answers, TimeoutError at the time limit.
    """
    request = {"entry": entry, "payload": payload, "environment": dict(environment), "cwd": os.path.abspath(cwd)}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(time_limit)
        with io.FileIO(os.memfd_create("xpulab-warm"), "r+") as file:
            _write_all(file, pickle.dumps(request, protocol=4))
            connection.connect(address)
            socket.send_fds(connection, [b"fork"], [file.fileno(), stdout, stderr])
        answer = connection.recv(_PACKET_BYTES, socket.MSG_PEEK).split()
        if answer[:1] == [b"started"]:
            connection.recv(_PACKET_BYTES)
    except TimeoutError as error:
        connection.close()
        raise TimeoutError(f"the warm parent at {address} started no child within {time_limit:.0f} s") from error
    except OSError as error:
        connection.close()
        raise ForkServerGone(_why_gone(address)) from error
    except BaseException:
        connection.close()
        raise
    if not answer:
        connection.close()
        raise ForkServerGone(_why_gone(address))
    if answer[0] == b"refused":
        connection.close()
        raise ForkServerGone(f"the warm parent at {address} could not fork: {os.strerror(int(answer[2]))}")
    return Worker(connection, int(answer[1]))  # which may have ended before it could say that it had started


class Worker:
    """A forked process, the leader of a session and a process group of its own. Threads may share a handle.

    When the handle is closed, or the process that holds it ends, the child's whole group is killed.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self.pid = pid
        self._start = _start_of(pid)
        self._connection = connection
        self._status: int | None = None
        self._receiving = threading.Lock()

    def fileno(self) -> int:
        """Readable from the child's end on: for select and selectors. -1 when closed."""
        return self._connection.fileno()

    def poll(self) -> int | None:
        """The exit status as subprocess.Popen has it (negative: the signal that ended it); None while it runs.

        A child whose parent died was killed with it: -9.
        """
        with self._receiving:
            if self._status is None:
                try:
                    answer = self._connection.recv(_PACKET_BYTES, socket.MSG_PEEK)  # others may wait for it too
                except (BlockingIOError, InterruptedError):
                    return None
                except OSError:
                    answer = b""
                self._take(answer)
        return self._status

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the child has ended; returns its status, or None when it runs on after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return None
            _readable(self._connection, left)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal to the child; nothing happens when it has ended."""
        self._send(b"signal %d" % number)

    def send_group_signal(self, number: int) -> None:
        """Send a signal to the child and to the processes that it started and left in its group."""
        self._send(b"group %d" % number)

    def kill(self) -> None:
        """Kill the whole group; wait() tells when the child is gone."""
        self.send_group_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of the child's group and forget it; returns when the child was reaped."""
        self._send(b"close")
        end = time.monotonic() + _END_SECONDS
        with self._receiving:
            while self._connection.fileno() >= 0 and (left := end - time.monotonic()) > 0:
                _readable(self._connection, left)
                try:
                    answer = self._connection.recv(_PACKET_BYTES)
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    answer = b""
                self._take(answer)
                if not answer:
                    break
            self._connection.close()
            self._status = -signal.SIGKILL if self._status is None else self._status

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self, answer: bytes) -> None:
        """Take the status from a packet; none means that the server hung up, which it does unasked only when it died."""
        if self._status is None and answer:
            self._status = int(answer.split()[2])
        elif self._status is None:
            self._status = -signal.SIGKILL
            if _start_of(self.pid) in (None, self._start):  # else the number, and so the group's, is somebody else's now
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _send(self, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # the server is gone, and the child with it
            self._connection.send(packet)


_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The working folder must not lend its modules to the imports; this package must be found without being installed.
_SERVER = "import sys; sys.path[:1] = []; sys.path.append(sys.argv[1]); from xpulab.warm.server import main; main(sys.argv[2:])"
_READ_AT_IMPORT = ("FLAGS_", "GLOG_", "CUSTOM_DEVICE_", "XPULAB_", "PADDLE_", "JPY_", "OMP_", "OPENBLAS_", "MKL_", "KMP_")


def _server_environment() -> dict[str, str]:
    """This process's environment without what libraries read while they are imported and a child may want otherwise.

    One thread each, since only the forking thread lives on in a child: OpenBLAS and Arrow's jemalloc start theirs as soon
    as they are loaded. Paddle's C++ writes to stderr what is no error, unless it is told before it is loaded.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_IMPORT) and name != "MPLBACKEND"}
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return {**kept, **alone, "GLOG_minloglevel": "2"}


def _private_folder() -> str:
    import tempfile

    folder = tempfile.mkdtemp(prefix="xpulab-warm-")
    if len(os.fsencode(folder)) > _SOCKET_PATH_BYTES:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="xpulab-warm-", dir="/tmp")
    return folder


def _why_gone(address: str) -> str:
    try:
        with open(os.path.join(os.path.dirname(address), "log"), encoding="utf-8", errors="replace") as log:
            said = log.read().strip().splitlines()
    except OSError:
        said = []
    return f"no warm parent answers at {address}" + (f"; its last words: {said[-1]}" if said else "")


def _start_of(pid: int) -> str | None:
    """When the process started, in the kernel's ticks; None when there is none with this number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
    file.seek(0)


def _readable(connection: socket.socket, seconds: float | None) -> Any:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
