"""`xpulab judge`: the run of a bundle, judged again on this machine."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def judge(
    bundle: Annotated[Path, typer.Argument(help="The file that xpulab bundle, or run --bundle, wrote.")],
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the reports of the new judgement, with the executed notebooks.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Both verdicts as JSON.")] = False,
) -> None:
    """Judge the run of a bundle again, from what its notebooks recorded, and compare that with what it claims.

    Exit code 0: green, as claimed. 1: red, or it says something else than its notebooks. 2: it cannot be judged.
    """
    from xpulab.fleet.judged import format_judged, judge_again, judged_to_json
    from xpulab.harness import report
    from xpulab.harness.run import prepare

    if out:
        prepare(out)
    with tempfile.TemporaryDirectory(prefix="xpulab-judge-") as scratch:
        folder = (out or Path(scratch)).resolve()
        judged = judge_again(bundle, folder)
        for each in judged if out else ():
            report.write(each.result)
        print(json.dumps(judged_to_json(judged), indent=2) if as_json else format_judged(judged))
    raise typer.Exit(0 if all(each.is_green for each in judged) else 1)
