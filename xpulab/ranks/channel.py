"""The connection between a notebook and one of its ranks: framed messages over a Unix socket. Standard library only.

A rank sends HELLO with the descriptor of the file that faulthandler writes its stack to, and receives its JOB. Then it sends
ENTERED, a STEP for each call of ranks.step(), and RETURNED or RAISED. It ends at END, or when the connection is closed.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

HELLO, JOB, ENTERED, STEP, RETURNED, RAISED, END = b"H", b"J", b"E", b"S", b"V", b"X", b"G"
"""The kinds of message. JOB and END go to the rank, all others come from it."""

_HEAD = struct.Struct("!cdQ")
_UID = struct.Struct("3i")


class Connection:
    """A rank's end of the connection: blocking; any of the rank's threads may send, none of its child processes can."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect("\0" + address)
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def hello(self, body: bytes, stack: int) -> None:
        """The first message, with the descriptor of the file that the stack is written to."""
        socket.send_fds(self._socket, [frame(HELLO, body)], [stack])

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send one message; in a process that was forked from the rank nothing is sent."""
        if os.getpid() == self._owner:
            with self._lock:
                self._socket.sendall(frame(kind, body))

    def receive(self) -> tuple[bytes, bytes]:
        """The next message's kind and body; END when the other side has closed."""
        head = self._exactly(_HEAD.size)
        if head is None:
            return END, b""
        kind, _, length = _HEAD.unpack(head)
        body = self._exactly(length)
        return (END, b"") if body is None else (kind, body)

    def _exactly(self, length: int) -> bytes | None:
        parts = []
        while length:
            part = self._socket.recv(min(length, 1 << 20))
            if not part:
                return None
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class Peer:
    """The notebook's end of the connection to one rank: never blocks, whatever the rank does.

    pid: the process at the other end, as the operating system names it. stack: a descriptor, once HELLO has come.
    quiet: whether nothing had come when it was last read from.
    """

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._socket = accepted
        self._read = bytearray()
        self._unsent = memoryview(b"")
        self.pid, self.user, _ = _UID.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UID.size))
        self.stack: int | None = None
        self.quiet = False

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    @property
    def sending(self) -> bool:
        """Whether something is still to be sent, so that the selector should ask for room."""
        return len(self._unsent) > 0

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send as much as there is room for now; pump() sends the rest."""
        self._unsent = memoryview(bytes(self._unsent) + frame(kind, body))
        self.pump()

    def pump(self) -> None:
        """Send what there is room for. That a rank has ended is noticed when it is read from."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = memoryview(b"")

    def receive(self) -> tuple[list[tuple[bytes, float, bytes]], bool]:
        """What has arrived, as (kind, time.monotonic() at which it was sent, body), and whether it is still connected."""
        connected, self.quiet = True, False
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 20, 1)
            for descriptor in descriptors:
                if self.stack is None:
                    self.stack = descriptor
                else:
                    os.close(descriptor)
            connected = bool(data)
            self._read += data
        except BlockingIOError:
            self.quiet = True
        except OSError:
            connected = False
        return self._messages(), connected

    def close(self) -> None:
        """Close the connection; the rank takes that as the end."""
        self._socket.close()
        if self.stack is not None:
            os.close(self.stack)
            self.stack = None

    def _messages(self) -> list[tuple[bytes, float, bytes]]:
        found = []
        while len(self._read) >= _HEAD.size:
            kind, at, length = _HEAD.unpack_from(self._read)
            if len(self._read) < _HEAD.size + length:
                break
            found.append((kind, at, bytes(self._read[_HEAD.size : _HEAD.size + length])))
            del self._read[: _HEAD.size + length]
        return found


def listen(address: str) -> socket.socket:
    """A socket that ranks connect to. Its name is in no folder, so nothing is left behind; it dies with its process."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + address)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def frame(kind: bytes, body: bytes) -> bytes:
    """One message: its kind, the time, its length, its body."""
    return _HEAD.pack(kind, time.monotonic(), len(body)) + body
