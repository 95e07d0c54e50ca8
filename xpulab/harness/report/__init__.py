"""Reports of a run: result.json for programs, junit.xml for CI systems, metrics.prom for Prometheus, index.html for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from xpulab.errors import InputError
from xpulab.files import read_text, replace_text
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import Verdict
from xpulab.harness.report.junit import to_xml
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.page import to_html
from xpulab.harness.report.result import Result, to_json
from xpulab.records.origin import seconds_of

RESULT = "result.json"

_FORMATS: dict[str, Callable[[Result], str]] = {
    "junit.xml": to_xml,
    "metrics.prom": to_metrics,
    "index.html": to_html,
    RESULT: lambda result: json.dumps(to_json(result), indent=2, allow_nan=False) + "\n",
}
FILES = tuple(_FORMATS)
"""The names of the reports; result.json is the last that is written, so that it stands for a complete report."""


def write(result: Result) -> None:
    """Write the reports into the folder of the result."""
    for name, text_of in _FORMATS.items():
        replace_text(result.folder / name, text_of(result), errors="backslashreplace")


def of_ended_run(folder: Path, options: RunOptions, verdicts: tuple[Verdict, ...]) -> Result | None:
    """The result with these verdicts of a run whose reports are complete, with its time and node; None when there is none."""
    try:
        stored = json.loads(read_text(folder / RESULT))
        seconds_of(stored["date"])
        return Result(options, verdicts, stored["seconds"], folder, stored["date"], stored["node"])
    except (InputError, ValueError, KeyError, TypeError):
        return None
