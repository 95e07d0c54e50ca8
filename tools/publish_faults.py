"""Write docs/faults.md: which faults the suite detects, from a run of the whole catalogue.

.venv/bin/xpulab selftest --json > build/selftest.json
.venv-formers/bin/xpulab selftest --json > build/selftest-19.json
.venv/bin/python tools/publish_faults.py build/selftest.json build/selftest-19.json

Each further file holds the trials of a chapter with an environment of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.faults import CATALOGUE

PAGE = files.ROOT / "docs" / "faults.md"
HISTORY = (
    "All were tried in one run of 22 minutes, on two cores without AVX-512, but those of chapter 19: in its own environment, "
    "with paddleformers 1.2.0.",
)
"""Where the rows of the page come from that was put together of several runs. Empty it when you publish a whole run. The page
must say the same, with the same numbers."""


def main(arguments: list[str]) -> None:
    """The paths of what `xpulab selftest --json` printed; exits with 2 when one is none."""
    if not arguments:
        raise SystemExit(__doc__)
    results = []
    for argument in arguments:
        try:
            results.append(json.loads(Path(argument).read_text(encoding="utf-8")))
            as_page(results[-1])
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{argument}: not what `xpulab selftest --json` prints: {error}", file=sys.stderr)
            raise SystemExit(2) from error
    result = together(results)
    PAGE.write_text(as_page(result), encoding="utf-8")
    print(f"{PAGE.relative_to(files.ROOT)}: {len(result['faults'])} faults")


def together(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The trials of several runs as those of one; no two runs have trials of the same chapter."""
    return {
        "detected": sum(result["detected"] for result in results),
        "faults": [trial for result in results for trial in result["faults"]],
    }


def as_page(result: dict[str, Any]) -> str:
    """The whole page, missed faults first."""
    trials = result["faults"]
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("paddlepaddle", "paddlenlp"))
    detected = result["detected"]
    head = [
        "# Which faults the suite detects",
        "",
        f"{detected} of {len(trials)} were detected by `xpulab selftest`, last on {date}, with {versions}.",
        *HISTORY,
        "Each was injected into its notebook alone, on the lane named: *cpu* is a CPU, *sim* stands for simulated cards.",
        (
            "A row with *smoke* ran the notebook at level smoke. All others ran the sections of the checks named, at level "
            "quick, or at *standard* where the row says so."
        ),
        (
            "**Nothing here was run on a real card.** Made by `tools/publish_faults.py`; the catalogue is "
            "[xpulab/faults](../xpulab/faults)."
        ),
    ]
    missed = [trial for trial in trials if trial["missed"]]
    body = ["", "## Missed", "", *_table(missed)] if missed else []
    detected = sorted((trial for trial in trials if not trial["missed"]), key=_order)
    for notebook, of_it in groupby(detected, key=lambda trial: trial["notebook"]):
        body += ["", f"## {notebook}", "", *_table(list(of_it))]
    if not_run := [fault for fault in CATALOGUE if fault.not_run]:
        rows = [(fault.name, fault.what, "not run", ", ".join(fault.detected_by), fault.not_run) for fault in not_run]
        titles = ("fault", "what breaks", "lane", "must be detected by", "why")
        body += ["", "## Not run", "", _line(titles), "|---|---|---|---|---|", *map(_line, rows)]
    return "\n".join([*head, *body]) + "\n"


def _table(trials: list[dict[str, Any]]) -> list[str]:
    titles = ("fault", "what breaks", "lane", "detected by", "s")
    return [_line(titles), "|---|---|---|---|---|", *map(_row, trials)]


def _row(trial: dict[str, Any]) -> str:
    detected = ", ".join(trial["detected_by"])
    lane = trial["device"] if trial["level"] == "quick" else f"{trial['device']}, {trial['level']}"
    cells = (trial["fault"], trial["what"], lane, detected or "-", f"{trial['seconds']:.0f}")
    return _line(cells)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _order(trial: dict[str, Any]) -> tuple[str, ...]:
    return trial["notebook"], trial["fault"], trial["level"], trial["device"]


if __name__ == "__main__":
    main(sys.argv[1:])
