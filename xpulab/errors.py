"""The error that a person can mend: it says what is wrong, where, and what to do."""

from __future__ import annotations

import re


class InputError(Exception):
    """Something given from outside is wrong: an argument, a file, a machine that lacks what was asked for.

    The message is complete: where (a file and its line, when there is one), what, and the remedy. The command line
    prints it without a traceback and exits with 2; a notebook shows it in one line.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def line_of(text: str, pattern: str) -> int:
    """The 1-based number of the first line of text that the regular expression matches; 1 when none does."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(pattern, line):
            return number
    return 1
