"""Write docs/grids.md and docs/zh/grids.md from the committed notebooks: axes, rules and cases of the checks that are grids.

.venv/bin/python tools/publish_grids.py            # --check: exit code 1 when the English page would change
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from translate import publish, row_of

from xpulab import files
from xpulab.checks.grid import listed
from xpulab.messages import N_
from xpulab.records.record import METADATA_KEY

PAGE = files.ROOT / "docs" / "grids.md"

INTRODUCTION = (
    "# " + N_("Grids"),
    "",
    N_(
        "Some checks are grids: their cases are made from axes, so that every pair of values of two axes is in some case at "
        "level *quick*, every three at level *standard*."
    ),
    N_("A rule says which values cannot go together. The seed (`--seed`) chooses other covers and other numbers."),
    N_("Of some grids each value of one axis has a cover of its own, as if every operator were a grid of its own."),
    N_(
        "Known defects of such a check name the values that show them (`when` in data/known_issues.yaml), so that the same "
        "defect elsewhere is still red."
    ),
    "",
    N_("Made from the committed notebooks by `tools/publish_grids.py`; the number of cases is that of seed 0 on a CPU."),
    "",
)


def page() -> str:
    """The page as the committed notebooks make it."""
    return "\n".join([*INTRODUCTION, *(_section(name, grid) for name, grid in grids())])


def grids() -> Iterator[tuple[str, dict[str, Any]]]:
    """The path of the notebook below notebooks/, without its ending, and what Grid.show displayed, for each grid."""
    for path in (*sorted(files.NOTEBOOKS.glob("*.ipynb")), *files.release_notebooks()):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if grid := output.get("metadata", {}).get(METADATA_KEY, {}).get("grid"):
                    yield path.relative_to(files.NOTEBOOKS).with_suffix("").as_posix(), grid


def _section(notebook: str, grid: dict[str, Any]) -> str:
    cases = ", ".join(f"{level} {count}" for level, count in grid["cases"].items())
    rows = [row_of((axis, listed(labels).replace("|", "\\|"))) for axis, labels in grid["axes"].items()]
    rules = [f"- {rule}" for rule in grid["rules"]]
    chapter = f"[{notebook}](../notebooks/{notebook}.ipynb)"
    head = [row_of((N_("axis"), N_("values, the default first"))), "|---|---|"]
    lines = [f"## {grid['check']}", "", N_(f"{chapter}, number of cases: {cases}.")]
    if each := grid["each"]:
        lines.append(N_(f"Each value of *{each}* has a cover of its own."))
    return "\n".join([*lines, "", *head, *rows, "", N_("Not together, because"), "", *rules, ""])


def main(arguments: list[str], written: Path = PAGE) -> None:
    """Write both pages, or compare the English one."""
    text = page()
    if arguments == ["--check"]:
        sys.exit(0 if written.exists() and written.read_text(encoding="utf-8") == text else 1)
    publish(written, text)


if __name__ == "__main__":
    main(sys.argv[1:])
