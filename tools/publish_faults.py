"""Write docs/faults.md: which faults the suite catches, from a run of the whole catalogue.

.venv/bin/xpulab selftest --json > build/selftest.json
.venv/bin/python tools/publish_faults.py build/selftest.json
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from xpulab import files

PAGE = files.ROOT / "docs" / "faults.md"


def main(arguments: list[str]) -> None:
    """The path of what `xpulab selftest --json` printed; exits with 2 when it is none."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    try:
        result = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        page = as_page(result)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{arguments[0]}: not what `xpulab selftest --json` prints: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE.relative_to(files.ROOT)}: {len(result['faults'])} faults")


def as_page(result: dict[str, Any]) -> str:
    """The whole page, survivors first."""
    trials = result["faults"]
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("paddlepaddle", "paddlenlp"))
    ran = f"{result['caught']} of {len(trials)} were caught when `xpulab selftest` ran on {date} with {versions}."
    head = [
        "# Which faults the suite catches",
        "",
        ran,
        "Each was let loose in its notebook alone, on the lane named: *cpu* is a CPU, *sim* stands for simulated cards.",
        "**Nothing here was run on a real card.** Made by `tools/publish_faults.py`; the catalogue is",
        "[xpulab/faults](../xpulab/faults).",
    ]
    survivors = [trial for trial in trials if trial["survived"]]
    body = ["", "## Survivors", "", *_table(survivors)] if survivors else []
    caught = sorted((trial for trial in trials if not trial["survived"]), key=lambda trial: (trial["notebook"], trial["fault"]))
    for notebook, of_it in groupby(caught, key=lambda trial: trial["notebook"]):
        body += ["", f"## {notebook}", "", *_table(list(of_it))]
    return "\n".join([*head, *body]) + "\n"


def _table(trials: list[dict[str, Any]]) -> list[str]:
    head = ["| fault | what breaks | lane | seen by | s |", "|---|---|---|---|---|"]
    return [*head, *map(_row, trials)]


def _row(trial: dict[str, Any]) -> str:
    seen = ", ".join(trial["seen_by"]) if not trial["says"] or trial["survived"] else f"the notebook's end: *{trial['says']}*"
    cells = (trial["fault"], trial["what"], trial["device"], seen or "-", f"{trial['seconds']:.0f}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    main(sys.argv[1:])
