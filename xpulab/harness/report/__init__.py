"""Reports of a run: result.json for programs, junit.xml for CI systems, index.html for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict
from xpulab.harness.report.junit import as_xml
from xpulab.harness.report.page import as_html
from xpulab.harness.report.result import as_json


def write(verdicts: Sequence[Verdict], target: Target, seconds: float, folder: Path) -> dict[str, Any]:
    """Write the three reports into the folder; returns what result.json holds."""
    result = as_json(verdicts, target, seconds, folder)
    (folder / "junit.xml").write_text(as_xml(result), encoding="utf-8")
    (folder / "index.html").write_text(as_html(result), encoding="utf-8", errors="backslashreplace")
    (folder / "result.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return result
