"""The error that a user can fix: its message names what is wrong, where, and what to do."""

from __future__ import annotations

import re


class InputError(Exception):
    """An input is wrong: an argument, a file, or a machine that lacks a requested device.

    The message is complete: where (file and line, when there is one), what, and the remedy. The command line prints it
    without a traceback and exits with 2; a notebook shows it in one line.
    """

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def line_of(text: str, pattern: str) -> int:
    """The 1-based number of the first line of text that contains a match of the regular expression; 1 when none does."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(pattern, line):
            return number
    return 1
