"""Plain lines of progress, each with the seconds since the start: what a display shows where there is no terminal."""

from __future__ import annotations

import time
from typing import TypeVar

from rich.console import Console

Lines = TypeVar("Lines", bound="TimedLines")


class TimedLines:
    """The base of such displays; as a context it shows nothing when it is entered and left."""

    def __init__(self, console: Console) -> None:
        self._console, self._started = console, time.monotonic()

    def __enter__(self: Lines) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._started
        self._console.print(f"[{elapsed:6.1f} s] {text}", highlight=False, markup=False, soft_wrap=True)
