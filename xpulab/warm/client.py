"""Start a fork server, and ask it for workers.

Importing Paddle and PaddleNLP takes seconds; forking a process that has done it takes milliseconds. Linux only.

    with warm.ForkServer() as fork_server:
        worker = warm.fork(fork_server.address, "package.module:function", b"payload", environment=os.environ, cwd=".", ...)
        status = worker.wait()

What a worker shares with a process that was started cold, and what it does not: xpulab.warm.worker.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence

from xpulab.child import Child, signal_group
from xpulab.records import environments
from xpulab.warm import protocol

ADDRESS = "XPULAB_WARM"
"""The environment variable that holds the address of a running fork server."""

RUN_FOLDER = "XPULAB_RUN_FOLDER"
"""The environment variable that all processes of a run inherit, also those of a fork server that one of them starts."""

_OF_MODELS = {
    "": tuple(f"paddlenlp.{each}" for each in ("transformers", "data", "trainer", "trl", "peft")),
    "formers": tuple(f"{environments.SUCCESSOR}.{each}" for each in ("transformers", "trainer", "peft")),
}
"""By environment the modules with models and trainers."""

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
    *_OF_MODELS[environments.present()],
    "safetensors",
)
"""What takes long among the imports of the notebooks. Nothing of xpulab: a worker runs its present sources."""

_START_SECONDS = 120.0
_END_SECONDS = 10.0
_SOCKET_PATH_BYTES = 90
"""Of a Unix socket's path 107 bytes are allowed; the socket's own name is appended to the folder."""

_seconds_of_workers = 0.0
_counting = threading.Lock()


class ForkServerGone(ConnectionError):
    """No fork server answers at the address, it could not fork, or it ended before it had started the worker."""


class ForkServer:
    """A running fork server; ends, with all its workers, at close(), at the end of the block, or when this process ends.

    address: where fork() finds it; the path of a socket that only this user may use.
    log: a file with what was printed while it imported; a failed import ends the fork server, and its error is there.
    It imports in the background: the first fork waits until it is done.
    """

    def __init__(
        self,
        preload: Sequence[str] = PRELOAD,
        within: str | os.PathLike[str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """within: where its folder is made; default: that for temporary files. variables: more of its environment."""
        self.folder = _private_folder(within)
        self.address = os.path.join(self.folder, "socket")
        self.log = os.path.join(self.folder, "log")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(self.log, "wb") as log:
            listener.bind(self.address)
            listener.listen(128)
            read, self._keepalive = os.pipe()
            try:
                fds = (listener.fileno(), read)
                command = [sys.executable, "-c", _SERVER, _ROOT, self.folder, *map(str, fds), str(os.getpid()), *preload]
                environment = {**_server_environment(), **(variables or {})}
                self._process = Child(command, stdout=log, stderr=log, cwd="/", env=environment, pass_fds=fds)
            except BaseException:
                os.close(self._keepalive)
                raise
            finally:
                os.close(read)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def where_it_imports(self) -> str:
        """While it imports: the line of Python that runs, as 'in File "...", line 3 in name'; "" when that cannot be known."""
        with open(self.log, "rb") as log:
            place = self._process.place(log.fileno())
        return f"in {place}" if place else ""

    def close(self) -> None:
        """End the fork server and all its workers; returns when they have ended."""
        if self._keepalive < 0:
            return
        os.close(self._keepalive)
        self._keepalive = -1
        self._process.end(_END_SECONDS)  # else it is killed, with what an import may have started
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def answers(address: str, time_limit: float) -> bool:
    """Whether the fork server at this address starts a worker that ends well; it has imported everything by then.

    time_limit: seconds, its imports included. Raises as `fork` does.
    """
    with fork(
        address, "builtins:len", b"", environment=os.environ, cwd=".", stdout=1, stderr=2, time_limit=time_limit
    ) as worker:
        return worker.wait() == 0


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
    """Start entry ("package.module:function") as function(payload) in a new worker of the fork server at this address.

    environment, cwd: all of the worker's environment variables, and its working folder. stdout, stderr: file descriptors.
    time_limit: seconds until the worker must have started, the fork server's imports included.
    A worker that cannot be set up writes why to its stderr and exits with 1, as one whose entry raises does.
    Raises ForkServerGone when no fork server answers, TimeoutError at the time limit.
    """
    request = protocol.Request(entry, payload, dict(environment), os.path.abspath(cwd))
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        connection.settimeout(time_limit)
        try:
            with io.FileIO(os.memfd_create("xpulab-warm"), "r+") as file:
                _write_all(file, pickle.dumps(request, protocol=4))
                connection.connect(address)
                socket.send_fds(connection, [protocol.FORK], [file.fileno(), stdout, stderr])
            received = connection.recv(protocol.PACKET_BYTES, socket.MSG_PEEK)
            kind, numbers = protocol.parse(received)
            if kind == protocol.STARTED:
                connection.recv(protocol.PACKET_BYTES)  # an ENDED is left for the worker's poll(): it may come first
        except TimeoutError as error:
            raise TimeoutError(f"the fork server at {address} started no worker within {time_limit:.0f} s") from error
        except OSError as error:
            raise ForkServerGone(_no_answer(address)) from error
        if kind == protocol.REFUSED:
            raise ForkServerGone(f"the fork server at {address} could not fork: {os.strerror(numbers[0])}")
        if kind == protocol.CLOSE:
            raise ForkServerGone(_no_answer(address))
        stack.pop_all()
        return Worker(connection, numbers[0])


def seconds_of_workers() -> float:
    """Processor seconds of the workers that this process has started and closed, and of the processes that they waited for.

    A worker that was killed counts, too; one whose fork server was killed does not.
    """
    return _seconds_of_workers


class Worker:
    """A forked process, the leader of a session and a process group of its own. Threads may share a handle.

    When the handle is closed, or the process that holds it ends, the worker's whole group is killed.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self.pid = pid
        self._start = _start_time(pid)
        self._connection = connection
        self._status: int | None = None
        self._receiving = threading.Lock()

    def fileno(self) -> int:
        """Readable from the worker's end on: for select and selectors. -1 when closed."""
        return self._connection.fileno()

    def poll(self) -> int | None:
        """The exit status as subprocess.Popen has it (negative: the signal that ended it); None while it runs.

        A worker whose fork server ended was killed with it: -9.
        """
        with self._receiving:
            if self._status is None:
                try:
                    received = self._connection.recv(protocol.PACKET_BYTES, socket.MSG_PEEK)  # others may wait for it too
                except (BlockingIOError, InterruptedError):
                    return None
                except OSError:
                    received = b""
                self._take(received)
        return self._status

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the worker has ended; returns its status, or None when it runs on after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return None
            _wait_readable(self._connection, left)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal to the worker; nothing happens when it has ended."""
        self._send(protocol.SIGNAL, number)

    def send_group_signal(self, number: int) -> None:
        """Send a signal to the worker and to the processes that it started and left in its group."""
        self._send(protocol.GROUP, number)

    def kill(self) -> None:
        """Kill the whole group; wait() returns when the worker has ended."""
        self.send_group_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of the worker's group and forget it; returns when the worker was reaped."""
        self._send(protocol.CLOSE)
        end = time.monotonic() + _END_SECONDS
        with self._receiving:
            while self._connection.fileno() >= 0 and (left := end - time.monotonic()) > 0:
                _wait_readable(self._connection, left)
                try:
                    received = self._connection.recv(protocol.PACKET_BYTES)
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    received = b""
                self._take(received)
                self._count(received)
                if not received:
                    break
            self._connection.close()
            self._status = -signal.SIGKILL if self._status is None else self._status

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self, received: bytes) -> None:
        """Take the status from a packet; a closed connection means that the fork server has ended."""
        if self._status is not None:
            return
        kind, numbers = protocol.parse(received)
        if kind == protocol.ENDED:
            _, self._status = numbers
            return
        self._status = -signal.SIGKILL
        if _start_time(self.pid) in (None, self._start):  # else the process id, and so the group's, is another process's now
            signal_group(self.pid, signal.SIGKILL)

    def _count(self, received: bytes) -> None:
        """Add the worker's processor time to that of all workers, when the packet has it."""
        global _seconds_of_workers
        kind, numbers = protocol.parse(received)
        if kind == protocol.REAPED:
            with _counting:
                _seconds_of_workers += numbers[1] / 1e6

    def _send(self, kind: bytes, *numbers: int) -> None:
        with contextlib.suppress(OSError):  # the fork server has ended, and the worker with it
            self._connection.send(protocol.packet(kind, *numbers))


_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The working folder must not lend its modules to the imports; this package must be found without being installed.
_SERVER = "import sys; sys.path[:1] = []; sys.path.append(sys.argv[1]); from xpulab.warm.server import main; main(sys.argv[2:])"
_READ_AT_IMPORT = ("FLAGS_", "GLOG_", "CUSTOM_DEVICE_", "XPULAB_", "PADDLE_", "JPY_", "OMP_", "OPENBLAS_", "MKL_", "KMP_")


def _server_environment() -> dict[str, str]:
    """This process's environment without what libraries read while they are imported and a worker may want otherwise.

    One thread each, since only the forking thread continues in a worker: OpenBLAS and Arrow's jemalloc start theirs as soon
    as they are loaded. Without GLOG_minloglevel Paddle's C++ writes lines to stderr that are no errors.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_IMPORT) and name != "MPLBACKEND"}
    kept |= {RUN_FOLDER: os.environ[RUN_FOLDER]} if RUN_FOLDER in os.environ else {}
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return {**kept, **single, "GLOG_minloglevel": "2"}


def _private_folder(within: str | os.PathLike[str] | None) -> str:
    folder = tempfile.mkdtemp(prefix="xpulab-warm-", dir=within)
    if len(os.fsencode(folder)) > _SOCKET_PATH_BYTES:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="xpulab-warm-", dir="/tmp")
    return folder


def _no_answer(address: str) -> str:
    try:
        with open(os.path.join(os.path.dirname(address), "log"), encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
    except OSError:
        lines = []
    return f"no fork server answers at {address}" + (f"; the last line of its log: {lines[-1]}" if lines else "")


def _start_time(pid: int) -> str | None:
    """When the process started, in the operating system's ticks; None when there is none with this id."""
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


def _wait_readable(connection: socket.socket, seconds: float | None) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
