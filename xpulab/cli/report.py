"""`xpulab report`: one check of a run as an issue for the developers of Paddle.

The text has the fields of their form "Bug Report" (PaddlePaddle/Paddle, .github/ISSUE_TEMPLATE/1_bug-report.yml) and ends in
commands that install xpulab and run the check.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from xpulab import files
from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.messages import N_, plain


@command()
def report(
    check: Annotated[
        str | None, typer.Argument(help="The name of a check that failed, or that a known issue belongs to.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="The folder of the run whose checks are meant.")] = None,
    known: Annotated[bool, typer.Option("--known", help="Only list the known defects that the run met.")] = False,
    out: Annotated[Path | None, typer.Option(help="The new file. Default: report-<check>.md.")] = None,
) -> None:
    """Write what a check of a run found as an issue for Paddle: cell, values, versions, and commands that repeat it.

    The text is in English and Chinese. Secrets and names of users are removed from it.
    """
    from xpulab.fleet.bundle import refuse_existing
    from xpulab.fleet.redact import of_this_process
    from xpulab.fleet.runs import content_of, read_result
    from xpulab.harness.report.text import format_known

    if run is None or not (known or check):
        raise InputError(N_("give the name of a check, or --known, and with --run the folder of a run"))
    if known:
        chosen.alone("--known", check=check, out=out)
    result = read_result(content_of(run), str(run / "result.json"))
    if known or check is None:
        print(format_known(each for _, each in _checks_in(result)))
        return
    path = out or Path(f"report-{check}.md")
    refuse_existing(path)
    text, _ = of_this_process().redact(plain(format_issue(run, result, check)))
    try:
        files.replace_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; name another file with --out") from error
    print(f"report: {path}")


def format_issue(folder: Path, result: Mapping[str, Any], name: str) -> str:
    """A check of a run as an issue. folder: of the run. result: what its result.json holds.

    Raises InputError when the run has no such check, or its executed notebook cannot be read.
    """
    import jinja2

    from xpulab import __version__
    from xpulab.devices import WHEELS, wheel_device
    from xpulab.fleet.anomaly import repeat
    from xpulab.fleet.runs import Run
    from xpulab.harness.chapter import read_notebook
    from xpulab.records.planned import planned_checks
    from xpulab.records.record import METADATA_KEY

    checks = {check["name"]: (notebook, check) for notebook, check in _checks_in(result)}
    if name not in checks:
        near = difflib.get_close_matches(name, checks, 3)
        meant = f"; did you mean {', '.join(near)}?" if near else ""
        raise InputError(f"{folder / 'result.json'}: its run has no check {name!r}{meant}")
    notebook, check = checks[name]
    if not notebook["executed"]:
        raise InputError(f"{folder}: {notebook['name']} did not run, so there is nothing to report; run it first")
    executed = read_notebook(folder / notebook["executed"])
    sources = [cell.source for cell in executed.cells if cell.cell_type == "code"]
    cells = {each.name: sources[each.cell - 1] for each in planned_checks(sources, notebook["executed"])}
    framework = f"--requirement xpulab/env/requirements/{wheel_device(result['device'])}.txt"
    if environment := executed.metadata[METADATA_KEY].get("environment"):
        framework = " ".join(f"{wheel}=={version}" for wheel, version in result["versions"].items() if wheel in WHEELS)
    template = jinja2.Environment(
        loader=jinja2.PackageLoader("xpulab.cli", "."), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    ).get_template("issue.md.j2")
    return template.render(
        check=check,
        rows=[row for row in check["rows"] if row["outcome"] not in ("passed", "skipped")] or [check],
        notebook=notebook["name"],
        cell=cells.get(name, ""),
        requirements=f"{environment or 'common'}.txt",
        framework=framework,
        run=result,
        repeat=repeat(Run("", folder, result), notebook["name"], name),
        xpulab=__version__,
    )


def _checks_in(result: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each check of a run, with its notebook."""
    return ((notebook, check) for notebook in result["notebooks"] for check in notebook["checks"])
