"""All ranks of a trial meet at the node of rank 0 before Paddle connects them: a rank that cannot says to which address.

Paddle alone only reports a timeout, or waits. Ranks that meet learn, too, when rank 0's store listens: a rank that looks for it
earlier sleeps for three seconds (tcp_utils.cc of Paddle 3.3.1).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator

from xpulab.ranks import rendezvous

_RETRY_SECONDS = 0.05
_GO = b"go\n"


class Unreachable(ConnectionError):
    """A rank cannot reach the node of rank 0, or not all ranks have arrived there. The message names addresses or ranks."""


@contextlib.contextmanager
def met(rank: int, ranks: int, address: str, store_port: int, seconds: float) -> Iterator[None]:
    """Meet the other ranks; inside the block rank 0 creates its store first. Raises Unreachable.

    address: "host:port" of the meeting, on the node of rank 0. store_port: of the store, on the same node.
    """
    if ranks == 1:
        yield
    elif rank == 0:
        with _gathered(address, ranks, seconds) as arrived, _releasing(arrived, store_port, seconds):
            yield
    else:
        _arrive(rank, address, seconds)
        yield


@contextlib.contextmanager
def _gathered(address: str, ranks: int, seconds: float) -> Iterator[list[socket.socket]]:
    """A connection of each other rank."""
    end, missing = time.monotonic() + seconds, set(range(1, ranks))
    port = int(address.rpartition(":")[2])
    with contextlib.ExitStack() as stack, socket.create_server(("", port), backlog=ranks) as listener:
        arrived = []
        while missing:
            listener.settimeout(max(end - time.monotonic(), _RETRY_SECONDS))
            try:
                connection = stack.enter_context(listener.accept()[0])
            except TimeoutError:
                names = ", ".join(map(str, sorted(missing)))
                raise Unreachable(f"rank {names} did not arrive at {address} within {seconds:.0f} s") from None
            connection.settimeout(seconds)
            missing.discard(_number(connection))
            arrived.append(connection)
        yield arrived


def _number(connection: socket.socket) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(connection.makefile("rb").readline(20))
    return -1


@contextlib.contextmanager
def _releasing(arrived: list[socket.socket], store_port: int, seconds: float) -> Iterator[None]:
    """A process, as Paddle holds the interpreter's lock until all are there, lets the others go on when the store listens."""
    pid = os.fork()
    if pid == 0:
        try:
            _release(arrived, store_port, seconds)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _release(arrived: list[socket.socket], store_port: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not rendezvous.listening(store_port) and time.monotonic() < end:
        time.sleep(_RETRY_SECONDS)
    for connection in arrived:
        with contextlib.suppress(OSError):
            connection.sendall(_GO)


def _arrive(rank: int, address: str, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    end, last = time.monotonic() + seconds, "no answer"
    while (left := end - time.monotonic()) > 0:
        try:
            connection = socket.create_connection((host, int(port)), timeout=left)
        except OSError as error:
            last = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
        else:
            with connection:
                return _wait_for_all(rank, address, connection, seconds)
    raise Unreachable(
        f"rank {rank} cannot connect to {address} within {seconds:.0f} s: {last}. Does a firewall between the nodes allow it?"
    )


def _wait_for_all(rank: int, address: str, connection: socket.socket, seconds: float) -> None:
    """Until rank 0 lets this rank go on; it gives up first when another rank is missing."""
    connection.settimeout(2 * seconds)
    try:
        connection.sendall(f"{rank}\n".encode())
        if connection.recv(len(_GO)):
            return
        reason = "rank 0 closed the connection"
    except OSError as error:
        reason = str(error)
    raise Unreachable(f"rank {rank} waited at {address} for the other ranks: {reason}")
