"""`xpulab lab`: JupyterLab on the notebooks."""

from __future__ import annotations

import sys

import typer

from xpulab.cli.app import command


@command()
def lab() -> None:
    """Open JupyterLab on the notebooks, whose kernels start warm: their first cell answers within a second.

    `xpulab run` in a terminal of this JupyterLab uses the same warm process.
    """
    from xpulab import files
    from xpulab.warm import kernels

    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={files.ROOT}", str(files.NOTEBOOKS)]
    raise typer.Exit(kernels.run_command(command, by_default=True))
