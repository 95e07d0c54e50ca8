"""The command line itself: what every command shares.

Exit codes: 0 green, 1 red, 2 could not run, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import wraps
from typing import Annotated, Any

import typer

from xpulab import __version__, messages
from xpulab.cli.console import INTERRUPTED, NO_VERDICT, begin, ending, undelivered
from xpulab.errors import InputError
from xpulab.messages import plain

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Notebooks that teach PaddlePaddle training on XPU, GPU and CPU, and test the machine that they run on.",
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"xpulab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before a command; each acts in its own callback."""


def main() -> None:
    """The command line: a command that cannot be understood ends with one line, which names the one that explains it."""
    with ending(Exception):
        begin()
        try:
            code = app(prog_name="xpulab", standalone_mode=False)
        except typer.TyperException as error:
            if not (wrong := " ".join(error.format_message().split()).rstrip(".")):  # the help was shown
                raise SystemExit(NO_VERDICT) from None
            asked = getattr(error, "ctx", None)
            raise InputError(f"{wrong}; see {asked.command_path if asked else 'xpulab'} --help") from None
        if code == INTERRUPTED:  # before a command began
            raise KeyboardInterrupt
    raise SystemExit(code)


class _Plain:
    """A stream for what a command says, much of which somebody else wrote: bundles, nodes, logs, tools."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(plain(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_JUDGE = ("run", "gate", "doctor", "host", "bundle", "judge", "compare", "fleet", "soak", "operations")
_GROUPS = {
    "To judge machines": _JUDGE,
    "To learn": ("lab", "exercise", "model", "data"),
    "To train, and to work on xpulab": ("align", "shapes", "search", "report", "selftest", "baseline"),
}
HEADINGS = {name: heading for heading, names in _GROUPS.items() for name in names}
"""By name of a command the heading under which `xpulab --help` shows it."""


def command(group: typer.Typer = app, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of the app, or of a group of commands: what keeps it from its end is a line and exit code 2."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def reporting(*arguments: object, **options: object) -> None:
            with ending(InputError, OSError, MemoryError):
                messages.choose()
                try:
                    with redirect_stdout(_Plain(sys.stdout)), redirect_stderr(_Plain(sys.stderr)):
                        function(*arguments, **options)
                except typer.Exit as verdict:
                    if verdict.exit_code:
                        raise
                only_shows = any(map(options.get, ("show_list", "known", "answer")))
                needed = {"shapes": "out", "exercise": "chapter"}.get(function.__name__, "")  # without it nothing is written
                leaves_files = "out" in options and not only_shows and options.get(needed, True)
                if not leaves_files and (error := undelivered()):
                    raise error

        heading = HEADINGS[function.__name__] if group is app else None
        return group.command(rich_help_panel=heading, **settings)(reporting)

    return registered
