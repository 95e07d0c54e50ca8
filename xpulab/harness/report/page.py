"""index.html: the result of a run for people: one page that needs no network and no other file."""

from __future__ import annotations

from collections import Counter

import jinja2

import xpulab
from xpulab.harness.report.result import PARTIAL, Result
from xpulab.records.format import format_measured, format_value


def to_html(result: Result) -> str:
    """The page of a run."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.harness.report", "."), autoescape=True)
    environment.filters["number"] = format_value
    environment.filters["measured"] = format_measured
    page = environment.get_template("page.html")
    return page.render(result=result, not_passed=_not_passed(result), partial=PARTIAL, version=xpulab.__version__)


def _not_passed(result: Result) -> list[tuple[str, int]]:
    """How many checks have each outcome but passed."""
    outcomes = Counter(record.outcome for verdict in result.verdicts for record in verdict.records)
    return [(outcome, count) for outcome, count in outcomes.items() if outcome != "passed"]
