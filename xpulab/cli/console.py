"""The process of a command: it begins so that a lost console ends nothing, and ends with 2 and one line without a verdict.

Standard library only: what is broken may be what the commands import.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xpulab.errors import InputError
from xpulab.messages import N_, plain, shown

NO_VERDICT, INTERRUPTED = 2, 130
"""Exit codes. 1 is a verdict, and nothing else."""

_OUT, _ERR = 1, 2
_GROUP_AND_OTHERS = 0o077
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READER_IS_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)

_undelivered: list[OSError] = []
_arrived: list[int] = []


class _Stream(io.FileIO):
    """A standard stream; what cannot be written any more, since reader, terminal or disk is gone, is dropped."""

    def write(self, data: Any, /) -> int:
        """How many bytes were taken."""
        try:
            while (taken := super().write(data)) is None:  # another process has made it non-blocking
                select.select([], [self], [])
            return taken
        except OSError as error:
            if self.fileno() == _OUT and error.errno not in _READER_IS_GONE:
                _undelivered.append(error)
            return len(data)


def begin() -> None:
    """At the start of the process: standard streams, files of its own, signals. Later ones are ignored, the third one kills."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _ERR:  # a closed one: the next file would take its place
        pass
    os.close(number)
    for name, descriptor in (("stdout", _OUT), ("stderr", _ERR)):
        encoding = getattr(getattr(sys, name), "encoding", "utf-8")  # None: it was closed
        buffer = io.BufferedWriter(_Stream(descriptor, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True))
    os.umask(os.umask(_GROUP_AND_OTHERS) & _GROUP_AND_OTHERS)  # what we write we can read
    for signal_number in _SIGNALS:  # a shell starts background jobs with SIGINT ignored, nohup a command with SIGHUP ignored
        if (signal_number, signal.getsignal(signal_number)) != (signal.SIGHUP, signal.SIG_IGN):
            signal.signal(signal_number, _interrupt)


def undelivered() -> OSError | None:
    """Why standard output does not hold what was written, when its reader is not the one who ended that."""
    if sys.stdout:
        sys.stdout.flush()
    return next(iter(_undelivered), None)


@contextmanager
def ending(*kinds: type[Exception]) -> Iterator[None]:
    """What ends the block without a verdict, one of these exceptions or a signal, ends the process with its cause in one line.

    Raises SystemExit with INTERRUPTED after a signal, else with NO_VERDICT.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"xpulab: {shown('interrupted')}", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except kinds as error:
        cause = error.args[0] if isinstance(error, InputError) else N_("no verdict: {cause}", cause=_cause(error))
        print(f"xpulab: {plain(shown(cause))}", file=sys.stderr)
        raise SystemExit(NO_VERDICT) from error


def _cause(error: Exception) -> str:
    """An error in one line: of the system its words and the file, of any other its place, too."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, OSError):
        return text
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({frame.filename}:{frame.lineno})"


def _interrupt(number: int, _frame: object) -> None:
    _arrived.append(number)
    if len(_arrived) == 1:
        raise KeyboardInterrupt
    if len(_arrived) > 2:  # what ends a run waits too long for its notebooks; the process beside it removes what is left
        os._exit(INTERRUPTED)
