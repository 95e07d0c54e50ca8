"""The packets between the requester of a worker, the fork server and the worker. Standard library only.

A requester opens one connection for each worker, a Unix socket of packets (SOCK_SEQPACKET). A packet is a kind and numbers:

    requester -> server   FORK, with three file descriptors: the pickled Request, standard output, standard error
    worker -> requester   STARTED pid
    server -> requester   ENDED pid status, or REFUSED errno when it could not fork
    requester -> server   SIGNAL n (to the worker), GROUP n (to its process group), CLOSE (kill the group, reap, close)
    server -> requester   REAPED pid microseconds: the processor time of the worker and of the processes that it waited for

Closing the connection means CLOSE. The server reaps a worker only then: until then its process id belongs to no other process.
REAPED is the last packet of a connection.
"""

from __future__ import annotations

from dataclasses import dataclass

FORK, SIGNAL, GROUP, CLOSE = b"fork", b"signal", b"group", b"close"
STARTED, ENDED, REFUSED, REAPED = b"started", b"ended", b"refused", b"reaped"

PACKET_BYTES = 64
"""More than any packet has."""

_NUMBERS = {FORK: 0, SIGNAL: 1, GROUP: 1, CLOSE: 0, STARTED: 1, ENDED: 2, REFUSED: 1, REAPED: 2}


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


def packet(kind: bytes, *numbers: int) -> bytes:
    """One packet."""
    return b" ".join((kind, *(b"%d" % number for number in numbers)))


def parse(received: bytes) -> tuple[bytes, list[int]]:
    """The kind and the numbers of a packet; CLOSE for an empty one, which a closed connection gives, and for an invalid one."""
    kind, *rest = received.split() or [CLOSE]
    try:
        numbers = [int(number) for number in rest]
    except ValueError:
        return CLOSE, []
    return (kind, numbers) if _NUMBERS.get(kind) == len(numbers) else (CLOSE, [])
