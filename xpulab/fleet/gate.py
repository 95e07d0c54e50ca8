"""The gate of a scheduler: one line and an exit code from the last run's result.json, in a fraction of a second.

It only reads: a job measures, with `xpulab run`. So it fits the few seconds that a prolog or a health check has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from xpulab.errors import InputError

GREEN, RED, UNKNOWN = 0, 1, 2
"""Exit codes: the machine is ready; something is wrong with it; nothing is known that is recent enough."""

_RED_CHECKS = ("failed", "broken", "missing")
_GREEN_NOTEBOOKS = ("passed", "partial", "skipped")


@dataclass(frozen=True)
class Answer:
    """line: what was found, for a log or a drain reason. code: GREEN, RED or UNKNOWN."""

    line: str
    code: int


def gate(folder: Path, max_age_hours: float, now: datetime | None = None) -> Answer:
    """The answer of the last run in this folder, which holds a run's result.json or several runs, a folder each.

    A partial run is no verdict on the machine: the last whole run counts. An interrupted run is red: it says nothing else.
    max_age_hours: a green verdict that is older counts as none; a red one stays red.
    Raises InputError when the folder cannot be read or holds no whole run.
    """
    path, result = _last(folder)
    age = _age_hours(path, result, now or datetime.now(timezone.utc))
    if not result["green"]:
        return Answer(f"xpulab: red {age:.1f} h ago, {_first_problem(result)}", RED)
    checks = sum(notebook["compared"] for notebook in result["notebooks"])
    found = f"{age:.1f} h ago, {checks} checks at level {result['level']} on {result['device']}"
    if age > max_age_hours:
        return Answer(f"xpulab: unknown, the last verdict is too old: green {found}; run it again", UNKNOWN)
    return Answer(f"xpulab: green {found}", GREEN)


def _last(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """The path and the content of the newest result.json of a whole run."""
    try:
        paths = [folder / "result.json"] if (folder / "result.json").exists() else sorted(folder.glob("*/result.json"))
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; name one with --out for `xpulab run`, and give it here")
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    whole = [(path, result) for path, result in _read(paths) if result["outcome"] != "partial"]
    if not whole:
        raise InputError(f"{folder}: holds no result.json of a whole run; `xpulab run --out {folder}/first` makes one")
    return max(whole, key=lambda pair: datetime.fromisoformat(pair[1]["date"]))


def _read(paths: list[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for path in paths:
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            datetime.fromisoformat(result["date"])
            result["green"], result["outcome"], result["notebooks"], result["level"], result["device"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not what `xpulab run` writes: {error!r}; remove it") from error
        yield path, result


def _age_hours(path: Path, result: Mapping[str, Any], now: datetime) -> float:
    age = (now - datetime.fromisoformat(result["date"])).total_seconds() / 3600
    if age < -0.1:  # clocks of machines differ by seconds, not by minutes
        raise InputError(f"{path}: its date {result['date']} is in the future; set the clock of this machine, and run it again")
    return max(0.0, age)


def _first_problem(result: Mapping[str, Any]) -> str:
    """The first red check with the command that repeats it, or why a notebook is red without one."""
    for notebook in result["notebooks"]:
        if notebook["outcome"] in _GREEN_NOTEBOOKS:
            continue
        for check in notebook["checks"]:
            if check["outcome"] in _RED_CHECKS:
                repeat = f"xpulab run {notebook['name']} --check {check['name']}"
                repeat += f" --device {result['device']} --level {result['level']}"
                return f"{check['name']} {_compared(check)}; repeat: {repeat}"
        return f"{notebook['name']} is {notebook['outcome']}: {notebook['reason']}"
    return (result.get("proof") or {}).get("reason") or "no notebook was green"


def _compared(check: Mapping[str, Any]) -> str:
    """What a check measured and expected; of a table that of its first red row."""
    row = next((row for row in check["rows"] if row["outcome"] in _RED_CHECKS), None)
    measured = (row or check)["measured"]
    if measured is None:
        return f"is {check['outcome']}: {check['reason']}"
    number = f"{measured:.4g}" if isinstance(measured, float) and math.isfinite(measured) else str(measured)
    return f"measured {number}{', ' + row['case'] if row else ''}, expected {(row or check)['expected']}"
