"""Kill this process at a chosen point of its writing, so that what a crash leaves behind can be looked at.

It is for a process of its own (xpulab.ranks): it does not come back, and it writes no last words. What is counted
are the bytes that Python writes through open(); a library that writes in another language's code goes uncounted.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
from pathlib import Path
from typing import Any


def count_bytes(folder: str | Path) -> Written:
    """From here on count the bytes that this process writes below the folder."""
    return Written(folder, None)


def kill_at_byte(folder: str | Path, number: int) -> Written:
    """Kill this process as soon as it has written `number` bytes below the folder, in the middle of a file or between two.

    Bytes that are in a buffer still are not written: they are lost, as they are when a process dies.
    """
    return Written(folder, number)


def kill_before(function: str) -> None:
    """Kill this process when it calls os.<function>, before anything has happened."""
    setattr(os, function, lambda *_, **__: die())


def kill_after(function: str) -> None:
    """Kill this process when its first call of os.<function> has returned."""
    real = getattr(os, function)

    def last(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        die()

    setattr(os, function, last)


def die() -> None:
    """End this process at once, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


class Written:
    """total: the bytes that were written below a folder so far. limit: at how many the process dies; None: never."""

    def __init__(self, folder: str | Path, limit: int | None) -> None:
        self.total = 0
        self._folder, self._limit, self._open = os.path.realpath(folder), limit, io.open
        builtins.open = io.open = self._opened

    def _opened(self, file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **named: Any) -> Any:
        """As open(); a file below the folder that is opened to be written counts what it writes."""
        if not set(mode) & set("wax") or not isinstance(file, str | os.PathLike) or not self._holds(file):
            return self._open(file, mode, buffering, *arguments, **named)
        raw = _Counting(os.fspath(file), mode.translate({ord(letter): None for letter in "bt"}))
        raw.count = self._write
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **named)

    def _holds(self, file: str | os.PathLike[str]) -> bool:
        return os.path.realpath(file).startswith(self._folder + os.sep)

    def _write(self, raw: io.FileIO, data: Any) -> int:
        """Write what may be written, and die at the limit."""
        data = memoryview(data).cast("B")
        left = len(data) if self._limit is None else self._limit - self.total
        done = io.FileIO.write(raw, data[:left]) if left > 0 else 0
        self.total += done
        if self._limit is not None and self.total >= self._limit:
            die()
        return done


class _Counting(io.FileIO):
    def write(self, data: Any) -> int:
        return self.count(self, data)
