"""The error that a user can fix: its message names what is wrong, where, and what to do."""

from __future__ import annotations


class InputError(Exception):
    """An input is wrong: an argument, a file, or a machine that lacks a requested device.

    The message is complete: where (file and line, when there is one), what, and the remedy. The command line prints it
    without a traceback and exits with 2; a notebook shows it in one line.
    """

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]
