"""The command line itself: what every command shares.

Exit codes: 0 green, 1 red, 2 could not run, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from xpulab import __version__, messages
from xpulab.errors import InputError
from xpulab.messages import shown

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
    """The entry point of the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    app()


_GROUPS = {
    "To judge machines": ("run", "gate", "cards", "doctor", "host", "bundle", "judge", "compare", "fleet", "soak"),
    "To learn": ("lab", "exercise", "model"),
    "To train, and to work on xpulab": ("align", "shapes", "report", "selftest", "baseline"),
}
HEADINGS = {name: heading for heading, names in _GROUPS.items() for name in names}
"""By name of a command the heading under which `xpulab --help` shows it."""


def command(group: typer.Typer = app, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of the app, or of a group of commands: an InputError becomes one message and exit code 2."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def reporting(*arguments: object, **options: object) -> None:
            try:
                messages.choose()
                function(*arguments, **options)
            except InputError as error:
                print(f"xpulab: {shown(error.args[0])}", file=sys.stderr)
                raise typer.Exit(2) from error
            except KeyboardInterrupt:
                print(f"xpulab: {shown('interrupted')}", file=sys.stderr)
                raise typer.Exit(130) from None

        heading = HEADINGS[function.__name__] if group is app else None
        return group.command(rich_help_panel=heading, **settings)(reporting)

    return registered
