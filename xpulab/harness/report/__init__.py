"""Reports of a run: result.json for programs, junit.xml for CI systems, metrics.prom for Prometheus, index.html for people."""

from __future__ import annotations

import json

from xpulab.harness.report.junit import to_xml
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.page import to_html
from xpulab.harness.report.result import Result, to_json
from xpulab.records import proof


def write(result: Result) -> None:
    """Write the reports into the folder of the result; result.json last, so that it stands for a complete report."""
    folder = result.folder
    if result.proof:
        (folder / proof.FILE).write_text(json.dumps(proof.to_json(result.proof), indent=2) + "\n", encoding="utf-8")
    (folder / "junit.xml").write_text(to_xml(result), encoding="utf-8")
    (folder / "metrics.prom").write_text(to_metrics(result), encoding="utf-8", errors="backslashreplace")
    (folder / "index.html").write_text(to_html(result), encoding="utf-8", errors="backslashreplace")
    (folder / "result.json").write_text(json.dumps(to_json(result), indent=2, allow_nan=False) + "\n", encoding="utf-8")
