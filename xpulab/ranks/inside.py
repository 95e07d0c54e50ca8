"""What runs in a rank: it receives its job, calls the function and sends back what came of it.

A rank that has returned waits until all have, as a script that ends with a barrier does; a rank that raised waits to be
ended. So no rank loses its connection to another one because of the order in which they are done.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import linecache
import os
import pickle
import signal
import sys
import traceback
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from xpulab.child import adopt_orphans
from xpulab.ranks import channel, leftovers, rendezvous, serialize
from xpulab.ranks.outcome import Raised

_OF_A_CARD = "CustomDevice error"
_HERE = str(Path(__file__).parent)
_connection: channel.Connection | None = None
_stack: TextIO | None = None


@dataclass(frozen=True)
class Job:
    """The job of every rank of a run.

    function: the serialized function and its arguments. device: cpu, gpu, xpu or sim. cards: how many ranks there are. path:
    the notebook's sys.path. sources: the lines of its cells by file name, so that a traceback can show them. environment:
    variables that only starting the rank needed, with the value they have in the notebook (None: not set).
    """

    function: bytes
    device: str
    cards: int
    path: list[str]
    sources: dict[str, tuple]
    environment: dict[str, str | None]


def forked(address: bytes) -> None:
    """The entry of a rank that is a worker of the fork server; address: that of the run."""
    main(address.decode())


def step(text: str) -> None:
    """Call it in the function to note how far it is; shown when the run fails. Outside a rank nothing happens."""
    if _connection is not None:
        with contextlib.suppress(OSError):  # the notebook has ended, and this rank is about to
            _connection.send(channel.STEP, str(text).encode())


def main(address: str) -> None:
    """Be one rank of the run that listens at `address`. Returns when all ranks have returned; else the process ends."""
    global _connection, _stack
    adopt_orphans()
    _stack = open(os.memfd_create("stack"), "w")  # noqa: SIM115 it is written to until the process has ended
    for number in (signal.SIGUSR1, signal.SIGTERM):
        faulthandler.register(number, file=_stack, all_threads=True, chain=number == signal.SIGTERM)
    _connection = channel.Connection(address)
    _connection.hello(json.dumps({"rank": int(os.environ["PADDLE_TRAINER_ID"])}).encode(), _stack.fileno())
    kind, body = _connection.receive()
    if kind != channel.JOB:
        os._exit(1)
    _connection.send(*_outcome(Job(**pickle.loads(body)), address, _connection, _stack))
    if _connection.receive() != (channel.END, b"returned"):
        os._exit(1)


def _outcome(job: Job, address: str, connection: channel.Connection, crash: TextIO) -> tuple[bytes, bytes]:
    """Run the job; returns the kind and the body of the message with its result."""
    try:
        _take_environment(job, address)
        _select_card(job)
        faulthandler.enable(file=crash)  # after Paddle, whose own handler prints C++ frames only
        function, arguments = pickle.loads(job.function)
        connection.send(channel.ENTERED)
        value = function(*arguments)
    except BaseException as error:
        _flush()
        return channel.RAISED, pickle.dumps(_raised(error))
    _flush()
    try:
        return channel.RETURNED, serialize.dumps(value)
    except Exception as error:
        not_serializable = TypeError(
            f"what this rank returned, a {type(value).__name__}, cannot be sent to the notebook: {error}. {serialize.REMEDY}"
        )
        return channel.RAISED, pickle.dumps(_raised(not_serializable))


def _take_environment(job: Job, address: str) -> None:
    """The notebook's path, sources and environment, before anything is imported or unpickled."""
    sys.path[:] = job.path
    sys.argv[:] = [""]
    linecache.cache.update(job.sources)
    os.environ[leftovers.MARK] = address
    for name, value in job.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)  # what was printed before a kill must be in the log


def _select_card(job: Job) -> None:
    """Make this rank's card the device of everything that Paddle computes."""
    from paddle.distributed import parallel

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
