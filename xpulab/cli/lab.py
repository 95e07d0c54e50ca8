"""`xpulab lab`: JupyterLab on the notebooks."""

from __future__ import annotations

import os

import typer

from xpulab.child import python_module
from xpulab.cli.app import command


@command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open JupyterLab on the notebooks, whose kernels start warm: their first cell answers within a second.

    On a GPU or an XPU they start cold.
    Other options, such as --no-browser --port 8888, go to JupyterLab.
    `xpulab run` in one of its terminals uses the same warm process.
    """
    from xpulab import files, messages, warm
    from xpulab.warm import kernels

    folder = str(files.notebooks_in(messages.language()))
    command = python_module("jupyterlab", f"--notebook-dir={files.ROOT}", folder, *context.args)
    if warm.wheel_of_a_card():
        os.execv(command[0], command)
    raise typer.Exit(kernels.run_command(command))
