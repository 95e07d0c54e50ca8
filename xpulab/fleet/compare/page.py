"""The page of a comparison for people: one HTML file that needs no network and no other file."""

from __future__ import annotations

import jinja2

from xpulab import __version__
from xpulab.fleet.compare.comparison import FLEET, PARITY, UPGRADE, Comparison
from xpulab.fleet.compare.text import format_cell, format_group_nodes, grouped

_TITLES = {FLEET: "Machines", UPGRADE: "Before and after", PARITY: "Devices"}


def to_html(comparison: Comparison) -> str:
    """The page of a comparison."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.fleet.compare", "."), autoescape=True)
    environment.filters["cell"] = format_cell
    environment.filters["nodes"] = format_group_nodes
    environment.tests["numeric"] = lambda cell: isinstance(cell, int | float)
    return environment.get_template("page.html").render(
        comparison=comparison,
        title=_TITLES[comparison.kind],
        findings=grouped(comparison.findings),
        improvements=grouped(comparison.improvements),
        wrong_runs={finding.node for finding in comparison.findings},
        version=__version__,
    )
