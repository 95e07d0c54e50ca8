"""`xpulab lab`: JupyterLab on the notebooks."""

from __future__ import annotations

import sys

import typer

from xpulab.cli.app import command


@command()
def lab() -> None:
    """Open JupyterLab on the notebooks, where the kernel "Python 3 (xpulab, warm)" starts within a second."""
    from xpulab import files
    from xpulab.warm import kernels

    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={files.ROOT}", str(files.NOTEBOOKS)]
    raise typer.Exit(kernels.run_command(command))
