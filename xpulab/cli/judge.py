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
    signers: Annotated[
        Path | None,
        typer.Option(
            help="Who may have signed it: lines with a name and a public SSH key. Without a signature by one of them: red."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Both verdicts as JSON.")] = False,
) -> None:
    """Judge the run of a bundle again, from what its notebooks recorded, and compare that with what it claims.

    Exit code 0: green, as claimed. 1: red, or it says something else than its notebooks, or its signature is refused.
    2: it cannot be judged.
    """
    from xpulab.fleet import signature
    from xpulab.fleet.bundle import signed
    from xpulab.fleet.judged import format_judged, judge_again, judged_to_json
    from xpulab.harness import report
    from xpulab.harness.run import prepare

    if out:
        prepare(out)
    with tempfile.TemporaryDirectory(prefix="xpulab-judge-") as scratch:
        folder = (out or Path(scratch)).resolve()
        judged = judge_again(bundle, folder)
        made_by = signature.examine(*signed(bundle), signers)
        for each in judged if out else ():
            report.write(each.result)
        print(json.dumps(judged_to_json(judged, made_by), indent=2) if as_json else format_judged(judged, made_by))
    raise typer.Exit(0 if all(each.is_green for each in judged) and made_by.outcome != "refused" else 1)
