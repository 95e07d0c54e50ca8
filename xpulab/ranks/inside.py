"""What runs in a rank: it receives its job, calls the function and sends back what came of it.

A rank that has returned waits until all have, as a script that ends with a barrier does; a rank that raised waits to be
ended. So no rank loses its connection to another one because of the order in which they are done.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from xpulab.ranks import rendezvous, serialize
from xpulab.ranks.outcome import RETURNED, Raised

MARK = "XPULAB_RANKS"
"""The environment variable that all programs which a rank starts inherit; its value is the run's address."""

_OF_A_CARD = "CustomDevice error"
_HERE = str(Path(__file__).parent)
_notebook: _Notebook | None = None
_stack: TextIO | None = None


@dataclass(frozen=True)
class Job:
    """The job of every rank of a run.

    function: the serialized function and its arguments. device: cpu, gpu, xpu or sim. cards: how many ranks there are. path:
    the notebook's sys.path. folder: the one it works in. sources: the lines of its cells by file name, so that a traceback can
    show them. environment: variables that only starting the rank needed, with the value they have in the notebook (None: not
    set). Of a team only, see member: modules: what a rank imports first. store_port: of the store of this call. is_last.
    """

    function: bytes
    device: str
    cards: int
    path: list[str]
    folder: str
    sources: dict[str, tuple]
    environment: dict[str, str | None]
    modules: list[str] = field(default_factory=list)
    store_port: int = 0
    is_last: bool = True


class _Notebook:
    """The connection to the notebook: any of the rank's threads may send, none of its child processes can."""

    def __init__(self, address: str) -> None:
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect("\0" + address)
            self._connection = Connection(connected.detach())
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def send(self, kind: str, value: Any = None) -> None:
        if os.getpid() == self._owner:
            with self._lock:
                self._connection.send((kind, time.monotonic(), value))

    def receive(self) -> Any:
        """What the notebook sends next; None when it has closed the connection."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        self._connection.close()


def forked(address: bytes) -> None:
    """The entry of a rank that is a worker of the fork server; address: that of the run."""
    main(address.decode())


def step(text: str) -> None:
    """Call it in the function to note how far it is; shown when the run fails. Outside a rank nothing happens."""
    if _notebook is not None:
        with contextlib.suppress(OSError):  # the notebook has ended, and this rank is about to
            _notebook.send("step", str(text))


def stack_file(folder: str | os.PathLike[str], rank: int) -> Path:
    """Where a rank's faulthandler writes. folder: that of the run's logs."""
    return Path(folder, f"stack.{rank}")


def main(address: str, prepare: Callable[[Job], None] | None = None, begin: Callable[[], None] = lambda: None) -> Job:
    """Be one rank of the run that listens at `address`. Returns the job when all ranks have returned; else the process ends.

    prepare: called before the function is deserialized; default: select_card and what groups need. begin: before it is called.
    """
    global _notebook, _stack
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    _stack = stack_file(os.environ["PADDLE_LOG_DIR"], rank).open("w")  # it is written to until the process has ended
    for number in (signal.SIGUSR1, signal.SIGTERM):
        faulthandler.unregister(number)  # an earlier function of a team may have taken the signal
        faulthandler.register(number, file=_stack, all_threads=True, chain=number == signal.SIGTERM)
    _notebook = _Notebook(address)
    _notebook.send("hello", (rank, os.getpid()))
    job = _notebook.receive()
    if job is None:
        os._exit(1)
    _notebook.send(*_outcome(job, address, _notebook, _stack, prepare or prepare_rank, begin))
    if _notebook.receive() != RETURNED:
        os._exit(1)
    return job


def stays() -> None:
    """Tell the notebook that this rank has ended the call, and not its process."""
    assert _notebook is not None
    _notebook.send("stays")
    _notebook.close()


def _outcome(job: Job, address: str, notebook: _Notebook, crash: TextIO, prepare: Any, begin: Any) -> tuple[str, Any]:
    """Run the job; returns the kind and the value of the message with its result."""
    try:
        _take_environment(job, address)
        prepare(job)
        faulthandler.enable(file=crash)
        faulthandler.unregister(signal.SIGTERM)  # Paddle has taken it
        faulthandler.register(signal.SIGTERM, file=crash, all_threads=True, chain=True)
        function, arguments = pickle.loads(job.function)
        begin()
        notebook.send("entered")
        value = function(*arguments)
    except BaseException as error:
        _flush()
        return "raised", _raised(error)
    _flush()
    try:
        return "returned", serialize.dumps(value)
    except Exception as error:
        not_serializable = TypeError(
            f"what this rank returned, a {type(value).__name__}, cannot be sent to the notebook: {error}. {serialize.REMEDY}"
        )
        return "raised", _raised(not_serializable)


def _take_environment(job: Job, address: str) -> None:
    """The notebook's path, sources and environment, before anything is imported or unpickled."""
    os.chdir(job.folder)
    sys.path[:] = job.path
    sys.argv[:] = [""]
    linecache.cache.update(job.sources)
    os.environ[MARK] = address
    for name, value in job.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)  # what was printed before a kill must be in the log


def prepare_rank(job: Job) -> None:
    """Make this rank's card the device of everything that Paddle computes, and groups, stores and crashes safe."""
    import paddle
    from paddle.distributed import parallel

    paddle.disable_signal_handler()  # it asks for memory: a rank whose memory is broken would wait for itself, and not end
    parallel._global_parallel_env = None  # get_world_size() answers for this rank, not for the fork server
    select_card(job.device, job.cards)
    rendezvous.prepare()


def select_card(device: str, cards: int) -> None:
    """Make the card of this rank's environment Paddle's device. cards: how many simulated cards there are."""
    import paddle

    if device == "cpu":
        paddle.set_device("cpu")
        return
    if device == "sim":
        from xpulab import sim

        sim.load(cards)
    selected = os.environ.get(f"FLAGS_selected_{device}s", os.environ["PADDLE_TRAINER_ID"])
    paddle.set_device(f"{device}:{selected.split(',')[0]}")  # a single rank is offered all cards


def _raised(error: BaseException) -> Raised:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE) and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = None  # it was raised here: no frame is the reader's
    frames = tuple((frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in traceback.walk_tb(trace))[::-1]
    text = "".join(traceback.format_exception(type(error), error, trace))
    card_error = _of_card(str(error))
    return Raised(type(error).__qualname__, f"{error}{card_error}", f"{text}{card_error.lstrip(':')}", frames)


def _of_card(message: str) -> str:
    """The error message of a simulated card, which Paddle does not pass on."""
    sim = sys.modules.get("xpulab.sim")
    cause = sim.last_error() if sim and _OF_A_CARD in message else ""
    return f": error of the simulated card: {cause}" if cause else ""


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
