"""Reports of a run: result.json for programs, junit.xml for CI systems, metrics.prom for Prometheus, index.html for people."""

from __future__ import annotations

import json
from pathlib import Path

from xpulab import files
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict
from xpulab.harness.report.junit import to_xml
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.page import to_html
from xpulab.harness.report.result import Result, to_json
from xpulab.harness.written import replace_text
from xpulab.records import proof

RESULT = "result.json"
NOT_ENDED = frozenset({"running", "waiting"})
"""The outcomes that only a run has which is under way, or was killed."""


def write(result: Result) -> None:
    """Write the reports into the folder of the result; result.json last, so that it stands for a complete report."""
    folder = result.folder
    if result.proof:
        replace_text(folder / proof.FILE, json.dumps(proof.to_json(result.proof), indent=2) + "\n")
    replace_text(folder / "junit.xml", to_xml(result))
    replace_text(folder / "metrics.prom", to_metrics(result), errors="backslashreplace")
    replace_text(folder / "index.html", to_html(result), errors="backslashreplace")
    _write_result(result)


def write_running(result: Result) -> None:
    """Write result.json alone, on one line, while the run is under way: indenting it takes three times as long."""
    _write_result(result, indent=None)


def is_complete(folder: Path) -> bool:
    """Whether the reports of a whole run are in the folder: not when it was killed before it had written them."""
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        outcomes = {result["outcome"], *(notebook["outcome"] for notebook in result["notebooks"])}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return not outcomes & NOT_ENDED and (folder / "index.html").exists()


def of_ended_run(folder: Path, target: Target, verdicts: tuple[Verdict, ...]) -> Result:
    """The result with these verdicts of a run whose reports are complete: its time, node and proof are those of the reports.

    Raises InputError when they have a proof and prove.json does not hold it.
    """
    stored = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    proved = None
    if stored["proof"] is not None:
        proved = proof.from_json(files.load_json(folder / proof.FILE, files.data("schema", "prove.schema.json")))
    return Result(target, verdicts, stored["seconds"], folder, stored["date"], stored["node"], proved)


def _write_result(result: Result, indent: int | None = 2) -> None:
    replace_text(result.folder / RESULT, json.dumps(to_json(result), indent=indent, allow_nan=False) + "\n")
