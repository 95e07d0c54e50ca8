"""`xpulab lab`: JupyterLab on the notebooks."""

from __future__ import annotations

import sys

import typer

from xpulab.cli.app import command


@command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open JupyterLab on the notebooks, whose kernels start warm: their first cell answers within a second.

    Other options, such as --no-browser --port 8888, go to JupyterLab.
    `xpulab run` in one of its terminals uses the same warm process.
    """
    from xpulab import files
    from xpulab.warm import kernels

    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={files.ROOT}", str(files.NOTEBOOKS), *context.args]
    raise typer.Exit(kernels.run_command(command, by_default=True))
