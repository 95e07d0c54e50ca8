"""Write docs/grids.md from the committed notebooks: the axes, rules and cases of each check that is a grid.

.venv/bin/python tools/publish_grids.py            # --check: exit code 1 when the page would change
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.records.record import METADATA_KEY

PAGE = files.ROOT / "docs" / "grids.md"

INTRODUCTION = """# Grids

Some checks are grids: their cases are made from axes, so that every pair of values of two axes is in some case at level
*quick*, every three at level *standard*. A rule says which values cannot go together. The seed (`--seed`) chooses other
covers and other numbers. An axis that is marked has a cover for each of its values, as if every operator were a grid of its
own. Known defects of such a check name the values that show them (`when` in data/known_issues.yaml), so that the same
defect elsewhere is still red.

Made from the committed notebooks by `tools/publish_grids.py`; the number of cases is that of seed 0 on a CPU.
"""


def page() -> str:
    """The page as the committed notebooks make it."""
    return "\n".join([INTRODUCTION, *(_section(name, grid) for name, grid in grids())])


def grids() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of the notebook and what Grid.show displayed, for each grid."""
    for path in sorted(files.NOTEBOOKS.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if grid := output.get("metadata", {}).get(METADATA_KEY, {}).get("grid"):
                    yield path.stem, grid


def _section(notebook: str, grid: dict[str, Any]) -> str:
    cases = ", ".join(f"{count} at {level}" for level, count in grid["cases"].items())
    rows = [
        f"| {axis}{' (each value has a cover of its own)' if axis == grid['each'] else ''} | {', '.join(labels)} |"
        for axis, labels in grid["axes"].items()
    ]
    rules = [f"- {rule}" for rule in grid["rules"]]
    chapter = f"[{notebook}](../notebooks/{notebook}.ipynb), {cases} cases."
    head = ["| axis | values, the default first |", "|---|---|"]
    return "\n".join([f"## {grid['check']}", "", chapter, "", *head, *rows, "", "Not together, because", "", *rules, ""])


def main(arguments: list[str], written: Path = PAGE) -> None:
    """Write the page, or compare it."""
    text = page()
    if arguments == ["--check"]:
        sys.exit(0 if written.exists() and written.read_text(encoding="utf-8") == text else 1)
    written.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
