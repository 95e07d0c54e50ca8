"""index.html: what came of a run, for people: one page that needs no network and no other file."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jinja2

import xpulab
from xpulab.harness.report.result import PARTIAL


def as_html(result: dict[str, Any]) -> str:
    """The page of a run, from the values of its result.json."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.harness.report", "."), autoescape=True)
    environment.filters["number"] = _number
    page = environment.get_template("page.html")
    return page.render(result=result, totals=_totals(result), partial=PARTIAL, version=xpulab.__version__)


def _totals(result: dict[str, Any]) -> dict[str, Any]:
    notebooks = result["notebooks"]
    outcomes = Counter(check["outcome"] for notebook in notebooks for check in notebook["checks"])
    return {
        "planned": sum(notebook["planned"] for notebook in notebooks),
        "compared": sum(notebook["compared"] for notebook in notebooks),
        "controls": sum(notebook["controls_rejected"] for notebook in notebooks),
        "other": [(name, count) for name, count in outcomes.items() if name != "passed"],
    }


def _number(measured: float | str | None) -> str:
    if isinstance(measured, float):
        return f"{measured:.4g}"
    return "" if measured is None else str(measured)
