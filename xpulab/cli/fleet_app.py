"""`xpulab fleet`: the commands for many machines."""

from __future__ import annotations

import typer

from xpulab.cli.app import app

fleet = typer.Typer(no_args_is_help=True, help="Many machines: through the site's scheduler, Slurm.")
app.add_typer(fleet, name="fleet")
