"""`xpulab lab`: JupyterLab on the notebooks."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from xpulab.cli.app import command


@command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: typer.Context,
    lang: Annotated[str, typer.Option(help="Of the notebooks and their figures: en or zh.")] = "",
) -> None:
    """Open JupyterLab on the notebooks, whose kernels start warm: their first cell answers within a second.

    Other options, such as --no-browser --port 8888, go to JupyterLab.
    `xpulab run` in one of its terminals uses the same warm process.
    """
    from xpulab import files, language
    from xpulab.warm import kernels

    lang = lang or language.chosen()
    folder = str(language.notebooks(lang))
    os.environ[language.VARIABLE] = lang
    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={files.ROOT}", folder, *context.args]
    raise typer.Exit(kernels.run_command(command, by_default=True))
