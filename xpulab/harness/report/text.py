"""The end of a run in a terminal: a line a notebook, what is wrong with it below, and the verdict."""

from __future__ import annotations

from typing import Any

from xpulab.harness.report.result import PARTIAL
from xpulab.records.record import RED

_TOLD = RED - {"missing"} | {"known", "fixed"}
"""The outcomes that get lines of their own; what is missing is listed in the notebook's reason."""


def as_text(result: dict[str, Any]) -> str:
    """What came of a run, from the values of its result.json."""
    lines = [line for notebook in result["notebooks"] for line in _notebook(notebook)]
    green = sum(notebook["outcome"] in ("passed", "partial") for notebook in result["notebooks"])
    compared = sum(notebook["compared"] for notebook in result["notebooks"])
    rejected = sum(notebook["controls_rejected"] for notebook in result["notebooks"])
    verdict = "green" if result["green"] else "RED"
    if result["outcome"] == "partial":
        lines.append(PARTIAL)
        verdict = f"partial, {verdict}"
    total = f"{green} of {len(result['notebooks'])} notebooks passed, {compared} checks compared, {rejected} controls rejected"
    where = f"on {result['device']} in {result['seconds']:.0f} s"
    return "\n".join([*lines, result["scope"], f"{verdict}: {total}, {where}"])


def _notebook(notebook: dict[str, Any]) -> list[str]:
    compared = f"{notebook['compared']} of {notebook['planned']} checks compared"
    lines = [f"{notebook['outcome']:<8}{notebook['name']}  {compared}, {notebook['seconds']:.1f} s"]
    if notebook["reason"]:
        lines.append(f"        {notebook['reason']}")
    lines += [f"        note: {note}" for note in notebook["notes"]]
    for check in notebook["checks"]:
        if check["outcome"] in _TOLD:
            lines.append(f"        {check['outcome']} {check['name']}: {check['means']}")
            lines.append(f"          measured {check['measured']}, expected {check['expected'] or '-'}; {check['reason']}")
    return lines
