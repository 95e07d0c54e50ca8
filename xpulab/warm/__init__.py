"""The fork server: a process that has imported everything once, and forks kernels and ranks from itself. Linux only.

    with warm.ForkServer() as fork_server:
        worker = warm.fork(fork_server.address, "package.module:function", b"payload", environment=os.environ, cwd=".", ...)
        status = worker.wait()

server: the process itself, and what both sides send each other. worker: what its forks become, and what one shares with a
process that was started cold. kernels: Jupyter kernels that are workers; kernel: what runs in one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from xpulab.child import Child, signal_group
from xpulab.devices import WHEELS
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.records import environments

READY = "ready"
"""The file in the server's folder that shows that it has imported everything."""

ADDRESS = "XPULAB_WARM"
"""The environment variable that holds the address of a running fork server."""

RUN_FOLDER = "XPULAB_RUN_FOLDER"
"""The environment variable that all processes of a run inherit, also those of a fork server that one of them starts."""

STARTS_OF_RANKS = "XPULAB_STARTS_OF_RANKS"
"""The environment variable with the file to which a kernel writes how long each launch of its ranks took, in seconds."""

_MODELS_AND_TRAINERS = {
    "": tuple(f"paddlenlp.{name}" for name in ("transformers", "data", "trainer", "trl", "peft")),
    "formers": tuple(f"{environments.SUCCESSOR}.{name}" for name in ("transformers", "trainer", "peft")),
}
"""Modules by environment."""

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
    *_MODELS_AND_TRAINERS[environments.present()],
    "safetensors",
)
"""What takes long among the imports of the notebooks. Nothing of xpulab: a worker runs its present sources."""

_START_SECONDS = 120.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.1
_SOCKET_PATH_BYTES = 90
"""Of a Unix socket's path 107 bytes are allowed; the socket's own name is appended to the folder."""

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The working folder must not lend its modules to the imports; this package must be found without being installed.
_SERVER = "import sys; sys.path[:1] = [sys.argv[1]]; from xpulab.warm.server import main; main(*sys.argv[2:])"
_READ_AT_IMPORT = ("FLAGS_", "GLOG_", "CUSTOM_DEVICE_", "XPULAB_", "PADDLE_", "JPY_", "OMP_", "OPENBLAS_", "MKL_", "KMP_")


def wheel_of_a_card() -> str | None:
    """The installed wheel of Paddle that is built for a GPU or an XPU, with which nothing is forked; None without one."""
    return next((name for name in environments.installed_frameworks() if name != WHEELS[0]), None)


class ForkServerGone(ConnectionError):
    """No fork server answers at the address, it could not fork, or it ended before it had started the worker."""


class ForkServer:
    """A running fork server; ends, with all its workers, at close(), at the end of the block, or when this process ends.

    address: where fork() finds it; the path of a socket that only this user may use.
    folder: its own, removed at its end; log: a file in it with what was printed while it imported. A failed import ends the
    fork server, and its error is there.
    It imports in the background: the first fork waits until it is done.
    """

    def __init__(
        self,
        preload: Sequence[str] = PRELOAD,
        within: str | os.PathLike[str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """within: where its folder is made; default: that for temporary files. variables: more of its environment.

        Raises InputError where it would import a Paddle that is built for a card: that a fork is then safe was never measured.
        """
        if "paddle" in preload and (wheel := wheel_of_a_card()):
            instead = N_("start kernels cold (jupyter lab, xpulab run --cold), launch ranks (launch=True)")
            raise InputError(
                N_("{wheel} is installed, and is not forked after import: {instead}", wheel=wheel, instead=instead)
            )
        self.folder = tempfile.mkdtemp(prefix="xpulab-warm-", dir=within)
        if len(os.fsencode(self.folder)) > _SOCKET_PATH_BYTES:
            os.rmdir(self.folder)
            self.folder = tempfile.mkdtemp(prefix="xpulab-warm-", dir="/tmp")
        self.address = os.path.join(self.folder, "socket")
        self.log = os.path.join(self.folder, "log")
        with socket.socket(socket.AF_UNIX) as listener, open(self.log, "wb") as log:
            listener.bind(self.address)
            listener.listen(128)
            keepalive, self._keepalive = os.pipe()
            try:
                fds = (listener.fileno(), keepalive)
                command = [sys.executable, "-c", _SERVER, _ROOT, self.folder, *map(str, fds), *preload]
                environment = {**_server_environment(), **(variables or {})}
                self._process = Child(command, stdout=log, stderr=log, cwd="/", env=environment, pass_fds=fds)
            except BaseException:
                os.close(self._keepalive)
                raise
            finally:
                os.close(keepalive)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether that has ended, closed or not."""
        return self._process.wait() is not None

    def close(self) -> None:
        """End the fork server and all its workers; returns when they have ended."""
        if self._keepalive < 0:
            return
        os.close(self._keepalive)
        self._keepalive = -1
        is_ready = os.path.exists(os.path.join(self.folder, READY))
        self._process.end(_END_SECONDS if is_ready else 0.0)  # else it is killed, with what an import may have started
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True)
class Request:
    """What a worker is to run.

    entry: "package.module:function", called with the payload. environment, cwd: all of its environment variables, and its
    working folder.
    """

    entry: str
    payload: bytes
    environment: dict[str, str]
    cwd: str


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
    connection = _connect(address, stdout, stderr)
    try:
        connection.send(Request(entry, payload, dict(environment), os.path.abspath(cwd)))
        if not connection.poll(time_limit):
            raise TimeoutError(f"the fork server at {address} started no worker within {time_limit:.0f} s")
        return Worker(connection, connection.recv())
    except (EOFError, ConnectionError) as error:
        connection.close()
        raise ForkServerGone(f"no fork server answers at {address}, or it cannot fork") from error
    except BaseException:
        connection.close()
        raise


def answers(address: str, time_limit: float) -> bool:
    """Whether the fork server at this address starts a worker that ends well; it has imported everything by then.

    time_limit: seconds, its imports included. Raises as `fork` does.
    """
    with fork(
        address, "builtins:len", b"", environment=os.environ, cwd=".", stdout=1, stderr=2, time_limit=time_limit
    ) as worker:
        return worker.wait() == 0


class Worker:
    """A forked process, the leader of a session and a process group of its own. Threads may share a handle.

    pid: its process. When it has ended, the handle is closed, or the process that holds it ends, its whole group is killed.
    """

    def __init__(self, connection: Connection, pid: int) -> None:
        self.pid = pid
        self._connection = connection
        self._status: int | None = None
        self._receiving = threading.Lock()

    def poll(self) -> int | None:
        """The exit status as subprocess.Popen has it (negative: the signal that ended it); None while it runs.

        A worker whose fork server ended was killed with it: -9.
        """
        with self._receiving:
            if self._status is None and self._connection.poll():
                self._receive_end()
        return self._status

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the worker has ended; returns its status, or None when it runs on after `timeout` seconds."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (status := self.poll()) is None and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(OSError):  # another thread has closed it; or it takes what comes
                self._connection.poll(min(left, _POLL_SECONDS))
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal to the worker; nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the whole group; wait() returns when the worker has ended."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as sending:
            sending.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Kill the worker's group and forget it; returns when the worker has ended."""
        self.kill()
        self.wait(_END_SECONDS)
        with self._receiving:
            self._connection.close()
            self._status = -signal.SIGKILL if self._status is None else self._status

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _receive_end(self) -> None:
        try:
            self._status = self._connection.recv()
        except (EOFError, OSError):  # the fork server has ended, and the worker with it, but not what that has started
            signal_group(self.pid, signal.SIGKILL)
            self._status = -signal.SIGKILL


def _connect(address: str, *fds: int) -> Connection:
    """A connection to a fork server, which has these file descriptors. Raises ForkServerGone."""
    with socket.socket(socket.AF_UNIX) as connected:
        try:
            connected.connect(address)
            socket.send_fds(connected, [b"f"], fds)
        except OSError as error:
            raise ForkServerGone(f"no fork server answers at {address}") from error
        return Connection(connected.detach())


def _server_environment() -> dict[str, str]:
    """This process's environment without what libraries read while they are imported and a worker may want otherwise.

    One thread each, since only the forking thread continues in a worker: OpenBLAS and Arrow's jemalloc start theirs as soon
    as they are loaded. Without GLOG_minloglevel Paddle's C++ writes lines to stderr that are no errors.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_IMPORT) and name != "MPLBACKEND"}
    kept |= {RUN_FOLDER: os.environ[RUN_FOLDER]} if RUN_FOLDER in os.environ else {}
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return {**kept, **single, "GLOG_minloglevel": "2"}
