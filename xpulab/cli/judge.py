"""`xpulab judge`: the verdict in a bundle, once its checksums are verified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def judge(
    bundle: Annotated[Path, typer.Argument(help="The file that xpulab bundle, or run --bundle, wrote.")],
) -> None:
    """Verify the checksums of a bundle, and show the verdict in it: of a soak that of each kept round.

    Exit code 0: green, 1: red, 2: damaged, or it has no verdict. docs/evidence.md says how to sign a bundle.
    """
    from xpulab.fleet.gate import RED, verdicts_in

    made, verdicts = verdicts_in(bundle)
    print(f"{bundle}: {len(made.entries)} files with the right checksums; {made.node}, {made.made}, xpulab {made.xpulab}")
    for name, answer in verdicts.items():
        print("\n  ".join((f"{name}: {answer.line}", *answer.problems[1:])))
    codes = {answer.code for answer in verdicts.values()}
    raise typer.Exit(RED if RED in codes else max(codes))
