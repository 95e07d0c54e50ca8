"""Kill this process at a chosen point while it writes files, to see what a crash leaves behind.

Use it in a process of its own (xpulab.ranks): the process ends by SIGKILL, without an error message. Only bytes that Python
writes through open() are counted; what a library writes in C or C++ is not.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kill_before(function: str) -> None:
    """Kill this process when it calls os.<function>, before the call has any effect."""
    setattr(os, function, lambda *_, **__: _die())


class WriteCounter:
    """Counts the bytes that this process writes below a folder from now on, by replacing open().

    total: the number of bytes so far. limit: the number of bytes at which the process is killed, in the middle of a file or
    between two files; None for never. Bytes that are still in a buffer do not count; they are lost, as in a real crash.
    """

    def __init__(self, folder: str | Path, limit: int | None = None) -> None:
        self.total = 0
        self._folder, self._limit, self._open = os.path.realpath(folder), limit, io.open
        builtins.open = io.open = self._open_counted

    def _open_counted(self, file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **named: Any) -> Any:
        """As open(), but a file below the folder that is opened for writing counts the bytes written."""
        is_below = isinstance(file, str | os.PathLike) and os.path.realpath(file).startswith(self._folder + os.sep)
        if not is_below or not set(mode) & set("wax"):
            return self._open(file, mode, buffering, *arguments, **named)
        raw = _CountedFile(os.fspath(file), mode.translate({ord(letter): None for letter in "bt"}))
        raw.count = self._write
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **named)

    def _write(self, raw: io.FileIO, data: Any) -> int:
        """Write the data up to the limit and add its size to the total; kill the process at the limit."""
        data = memoryview(data).cast("B")
        allowed = len(data) if self._limit is None else self._limit - self.total
        written = io.FileIO.write(raw, data[:allowed]) if allowed > 0 else 0
        self.total += written
        if self._limit is not None and self.total >= self._limit:
            _die()
        return written


class _CountedFile(io.FileIO):
    """A file whose write() is the function `count`, called with the file and the data; it returns the bytes written."""

    count: Callable[[io.FileIO, Any], int]

    def write(self, data: Any) -> int:
        return self.count(self, data)


def _die() -> None:
    """End this process at once with SIGKILL, as Linux does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
