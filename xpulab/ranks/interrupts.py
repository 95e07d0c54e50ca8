"""Interrupts (Ctrl-C) during a run are noted instead of raised, so that nothing is left half done."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from typing import Any


class Interrupts(contextlib.AbstractContextManager):
    """From hold() to the end of the block an interrupt raises nothing, and is noted instead.

    So it cannot come between a rank's message and the note of it, nor while ranks are being ended.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None
        self._woken, self._waker = socket.socketpair()

    def hold(self) -> socket.socket:
        """Returns a socket that an interrupt makes readable. Only the main thread is interrupted; others hold nothing."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self._woken

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self._woken.close()
        self._waker.close()

    def _note(self, *_: object) -> None:
        if not self.came:
            self.came = True
            self._waker.send(b"!")
