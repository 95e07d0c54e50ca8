"""Ranks without Paddle: the communicators of the plug-in, called through ctypes (group_abi.cc) from forked processes."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xpulab.sim.limits import DEFINITIONS

PLUGIN = Path(__file__).parents[3] / "xpulab" / "sim" / "plugin"
INTERFACE = Path(__file__).with_name("group_abi.cc")
LIBRARY = "communicators.so"
OPS = ("SUM", "AVG", "MAX", "MIN", "PRODUCT")
TYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "COMPLEX64", "COMPLEX128"),
)
"""In the order of Paddle's C_DataType, which counts them from 1."""


class CallFailed(Exception):
    """A call of the library failed; the text is the library's."""


class Message(ctypes.Structure):
    """One send or receive, as the library's C interface has it."""

    _fields_ = (
        ("outgoing", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("type", ctypes.c_uint32),
        ("peer", ctypes.c_uint32),
    )


class Group:
    """One rank of a communicator. Arrays are numpy's, contiguous; type and op are names from TYPES and OPS."""

    def __init__(self, library: ctypes.CDLL, name: bytes, ranks: int, rank: int, seconds: float = 20.0) -> None:
        self.library, self.ranks, self.rank = library, ranks, rank
        self.handle = ctypes.c_void_p()
        self._call("join", name, size(ranks), size(rank), ctypes.c_double(seconds), ctypes.byref(self.handle), handle=False)

    def leave(self) -> None:
        self.library.xpulab_group_leave(self.handle)

    def all_reduce(self, send: np.ndarray, receive: np.ndarray, type: str, op: str, count: int | None = None) -> None:
        self._call(
            "all_reduce",
            address(send),
            address(receive),
            size(send.size if count is None else count),
            number(type),
            OPS.index(op),
        )

    def reduce(self, send: np.ndarray, receive: np.ndarray, type: str, op: str, root: int) -> None:
        self._call("reduce", address(send), address(receive), size(send.size), number(type), OPS.index(op), size(root))

    def broadcast(self, data: np.ndarray, type: str, root: int) -> None:
        self._call("broadcast", address(data), size(data.size), number(type), size(root))

    def all_gather(self, send: np.ndarray, receive: np.ndarray, type: str) -> None:
        self._call("all_gather", address(send), address(receive), size(send.size), number(type))

    def reduce_scatter(self, send: np.ndarray, receive: np.ndarray, type: str, op: str) -> None:
        self._call("reduce_scatter", address(send), address(receive), size(receive.size), number(type), OPS.index(op))

    def all_to_all(self, send: list[np.ndarray], receive: list[np.ndarray], type: str) -> None:
        pointers, counts = ctypes.c_void_p * self.ranks, ctypes.c_size_t * self.ranks
        self._call(
            "all_to_all",
            pointers(*(part.ctypes.data for part in send)),
            counts(*(part.size for part in send)),
            pointers(*(part.ctypes.data for part in receive)),
            counts(*(part.size for part in receive)),
            number(type),
        )

    def exchange(self, type: str, send: list[tuple[np.ndarray, int]] = (), receive: list[tuple[np.ndarray, int]] = ()) -> None:
        """All of the (array, other rank) together."""
        asked = [(1, *one) for one in send] + [(0, *one) for one in receive]
        messages = (Message * len(asked))(
            *(Message(outgoing, data.ctypes.data, data.size, number(type), peer) for outgoing, data, peer in asked)
        )
        self._call("exchange", messages, size(len(asked)))

    def _call(self, name: str, *arguments: Any, handle: bool = True) -> None:
        error = ctypes.create_string_buffer(4096)
        function = getattr(self.library, f"xpulab_group_{name}")
        if function(*((self.handle,) if handle else ()), *arguments, error):
            raise CallFailed(error.value.decode())


def size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


def number(type: str) -> ctypes.c_uint32:
    return ctypes.c_uint32(TYPES.index(type) + 1)


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@dataclass(frozen=True)
class Ended:
    """How a rank ended. value: what its function returned. error: its exception's text. status: negative for a signal."""

    value: Any
    error: str | None
    status: int


class Ranks:
    """Forks ranks and collects how they ended; nothing of them is left when a test ends."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._running: dict[int, int] = {}  # a process to the pipe that its result comes through

    def make_id(self) -> bytes:
        name, error = ctypes.create_string_buffer(128), ctypes.create_string_buffer(4096)
        if self.library.xpulab_group_make_id(name, error):
            raise CallFailed(error.value.decode())
        return name.value

    def remove_stale(self) -> None:
        error = ctypes.create_string_buffer(4096)
        assert self.library.xpulab_group_remove_stale(error) == 0, error.value

    def group(self, name: bytes, ranks: int, rank: int, seconds: float = 20.0) -> Group:
        return Group(self.library, name, ranks, rank, seconds)

    def fork(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Start function(*arguments) in a process; its id."""
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.close(reader)
                try:
                    result = (function(*arguments), None)
                except CallFailed as error:
                    result = (None, str(error))
                except BaseException:
                    result = (None, traceback.format_exc())
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(pickle.dumps(result))
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        self._running[process] = reader
        return process

    def collect(self, processes: list[int], seconds: float = 60.0) -> list[Ended]:
        """How they ended. One that does not end in time is killed, and the test fails."""
        until = time.monotonic() + seconds
        parts: dict[int, bytes] = {process: b"" for process in processes}
        open_ones = {self._running[process]: process for process in processes}
        while open_ones and (left := until - time.monotonic()) > 0:
            for pipe in select.select(list(open_ones), [], [], left)[0]:
                if part := os.read(pipe, 1 << 20):
                    parts[open_ones[pipe]] += part
                else:
                    del open_ones[pipe]
        late = sorted(open_ones.values())
        for process in late:
            os.kill(process, signal.SIGKILL)
        ended = []
        for process in processes:
            os.close(self._running.pop(process))
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            value, error = pickle.loads(parts[process]) if parts[process] else (None, None)
            ended.append(Ended(value, error, status))
        assert not late, f"processes {late} were not done after {seconds:.0f} s; the others: {ended}"
        return ended

    def run(self, ranks: int, function: Callable[[Group], Any], seconds: float = 60.0, timeout: float = 20.0) -> list[Ended]:
        """function(group) on so many ranks of one communicator, who then leave it."""
        name = self.make_id()

        def rank_of(rank: int) -> Any:
            group = self.group(name, ranks, rank, timeout)
            try:
                return function(group)
            finally:
                group.leave()

        return self.collect([self.fork(rank_of, rank) for rank in range(ranks)], seconds)

    def values(self, ranks: int, function: Callable[[Group], Any], seconds: float = 60.0) -> list[Any]:
        """As run, for what must succeed: what the ranks returned."""
        ended = self.run(ranks, function, seconds)
        assert [each.error for each in ended] == [None] * ranks
        assert [each.status for each in ended] == [0] * ranks
        return [each.value for each in ended]

    def end(self) -> None:
        for process, pipe in self._running.items():
            os.close(pipe)
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self._running.clear()


@pytest.fixture(scope="session")
def library(once: Callable[[str, Callable[[Path], None]], Path]) -> ctypes.CDLL:
    """The communicators alone, without the rest of the plug-in and without Paddle."""
    loaded = ctypes.CDLL(str(once("communicators", build) / LIBRARY))
    loaded.xpulab_group_leave.restype = None
    return loaded


def build(folder: Path) -> None:
    """Compile the library into a folder."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    assert compiler, "a C++ compiler is needed: apt-get install g++"
    sources = [INTERFACE, *sorted(PLUGIN.glob("shm_*.cc")), *sorted(PLUGIN.glob("reduce_*.cc"))]
    options = ["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", str(PLUGIN), *DEFINITIONS]
    building = [
        subprocess.Popen([compiler, *options, "-c", str(source), "-o", str(folder / f"{source.stem}.o")]) for source in sources
    ]
    try:
        assert [each.wait(timeout=120) for each in building] == [0] * len(sources)
    finally:
        for each in building:
            each.kill()
    objects = [str(folder / f"{source.stem}.o") for source in sources]
    subprocess.run([compiler, "-shared", *objects, "-pthread", "-lrt", "-o", str(folder / LIBRARY)], check=True, timeout=60)


@pytest.fixture
def ranks(library: ctypes.CDLL) -> Iterator[Ranks]:
    started = Ranks(library)
    yield started
    started.end()
