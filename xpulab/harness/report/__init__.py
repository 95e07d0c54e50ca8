"""Reports of a run: result.json for programs, junit.xml for CI systems, metrics.prom for Prometheus, index.html for people."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from xpulab.files import replace_text
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import Verdict
from xpulab.harness.report.junit import to_xml
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.page import to_html
from xpulab.harness.report.result import Result, to_json

RESULT = "result.json"


def write(result: Result) -> None:
    """Write the reports into the folder of the result; result.json last, so that it stands for a complete report."""
    folder = result.folder
    replace_text(folder / "junit.xml", to_xml(result))
    replace_text(folder / "metrics.prom", to_metrics(result), errors="backslashreplace")
    replace_text(folder / "index.html", to_html(result), errors="backslashreplace")
    replace_text(folder / RESULT, json.dumps(to_json(result), indent=2, allow_nan=False) + "\n")


def of_ended_run(folder: Path, options: RunOptions, verdicts: tuple[Verdict, ...]) -> Result | None:
    """The result with these verdicts of a run whose reports are complete, with its time and node; None when there is none."""
    try:
        stored = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        datetime.fromisoformat(stored["date"])
        return Result(options, verdicts, stored["seconds"], folder, stored["date"], stored["node"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
