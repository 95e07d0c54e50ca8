"""`xpulab judge`: the verdict in a bundle, once its checksums are verified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def judge(
    bundle: Annotated[Path, typer.Argument(help="The file that xpulab bundle wrote.")],
) -> None:
    """Verify the checksums of a bundle, and show the verdict of its run.

    Exit code 0: green, 1: red, 2: damaged, or it has no verdict. docs/evidence.md says how to sign a bundle.
    """
    from xpulab.fleet.gate import verdict_in
    from xpulab.messages import one_line

    made, answer = verdict_in(bundle)
    of = f"{made.node}, {made.made}, xpulab {made.xpulab}"
    print(one_line(f"{bundle}: {len(made.entries)} files with the right checksums; {of}"))
    print("\n  ".join((answer.line, *answer.problems[1:])))
    raise typer.Exit(answer.code)
