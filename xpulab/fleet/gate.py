"""The gate of a scheduler: one line and an exit code from the last run's result.json, in a fraction of a second.

It only reads: a job measures, with `xpulab run`. So it fits the few seconds that a prolog or a health check has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from xpulab.errors import InputError

GREEN, RED, UNKNOWN = 0, 1, 2
"""Exit codes: the machine is ready; something is wrong with it; nothing is known that is recent enough."""

_CODES = {"green": GREEN, "red": RED, "unknown": UNKNOWN}
_RED_CHECKS = ("failed", "broken", "missing")
_NOT_ENDED = ("running", "waiting")
_GREEN_NOTEBOOKS = ("passed", "partial", "skipped")
_LONGEST_PART = 100
"""Characters of what a check measured, or expected, or of another reason: the line must end with the command."""


@dataclass(frozen=True)
class Problem:
    """A red check, or a notebook that is red without one.

    notebook, check: names; check is None for a notebook without a red check.
    seen: what is wrong: "measured 0.3, expected < 1e-4" or "is missing: interrupted before it started".
    command: what repeats it. remedy: what is known to fix it, a command or a sentence, or None.
    """

    notebook: str
    check: str | None
    seen: str
    command: str
    remedy: str | None

    def __str__(self) -> str:
        return f"{self.check or self.notebook} {self.seen}; rerun: {self.command}"


@dataclass(frozen=True)
class Answer:
    """What the last run says of this machine.

    outcome: "green", "red" or "unknown". line: what was found, for a log. action: what to do next, or None.
    problems: why it is red, in the order of the notebooks. date: when the run ended, ISO 8601; age_hours: how long ago.
    level, device, cards: of the run. These are None, and problems empty, when there is no verdict.
    """

    outcome: Literal["green", "red", "unknown"]
    line: str
    action: str | None
    problems: tuple[Problem, ...] = ()
    date: str | None = None
    age_hours: float | None = None
    level: str | None = None
    device: str | None = None
    cards: int | None = None

    @property
    def code(self) -> int:
        """GREEN, RED or UNKNOWN."""
        return _CODES[self.outcome]

    @property
    def reason(self) -> str:
        """Why a scheduler drains this node: check, measured, expected, and the command to repeat; else the line."""
        return f"[node_problem] xpulab {self.problems[0]}" if self.problems else self.line

    def to_json(self) -> dict[str, Any]:
        """As JSON values, in the form of data/schema/gate.schema.json."""
        return {"schema": 1, "code": self.code, **asdict(self), "problems": [asdict(each) for each in self.problems]}


def without_verdict(why: str) -> Answer:
    """The answer when there is no run to read, or none that can be read."""
    return Answer("unknown", f"xpulab: unknown, {_one_line(why)}", "run xpulab on this machine, see docs/operations.md")


def gate(folder: Path, max_age_hours: float, now: datetime | None = None) -> Answer:
    """The answer of the last run in this folder, which holds a run's result.json or several runs, a folder each.

    A partial run is no verdict on the machine: the last whole run counts. A run that was interrupted before anything failed is
    none either, so a job that its user or the scheduler ended drains no node.
    A run that is under way, or was killed, is none either, unless one of its checks is red already.
    max_age_hours: a green verdict that is older counts as none; a red one stays red.
    Raises InputError when the folder cannot be read or holds no whole run.
    """
    path, result = _last(folder)
    age = _age_hours(path, result, now or datetime.now(timezone.utc))
    facts = {"date": result["date"], "age_hours": age, **{name: result[name] for name in ("level", "device", "cards")}}
    again = f"xpulab run {_options(result)} --out {folder}/NEW"
    if _was_only_interrupted(result):
        line = f"xpulab: unknown, the last run was interrupted {age:.1f} h ago; run it again"
        return Answer("unknown", line, again, **facts)
    if not result["green"]:
        problems = tuple(_problems(result))
        why = (result.get("proof") or {}).get("reason") or "no notebook was green"
        first = problems[0] if problems else Problem("run", None, f"is red: {_one_line(why)}", again, None)
        return Answer(
            "red", f"xpulab: red {age:.1f} h ago, {first}", first.remedy or first.command, problems or (first,), **facts
        )
    checks = sum(notebook["compared"] for notebook in result["notebooks"])
    found = f"{age:.1f} h ago, {checks} checks at level {result['level']} on {result['device']}"
    if age > max_age_hours:
        line = f"xpulab: unknown, the last verdict is too old: green {found}; run it again"
        return Answer("unknown", line, again, **facts)
    return Answer("green", f"xpulab: green {found}", None, **facts)


def _last(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """The path and the content of the newest result.json of a whole run."""
    try:
        paths = [folder / "result.json"] if (folder / "result.json").exists() else sorted(folder.glob("*/result.json"))
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; name one with --out for `xpulab run`, and give it here")
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    whole = [(path, result) for path, result in _read(paths) if _is_verdict(result)]
    if not whole:
        raise InputError(f"{folder}: holds no result.json of a whole run; `xpulab run --out {folder}/first` makes one")
    return max(whole, key=lambda pair: datetime.fromisoformat(pair[1]["date"]))


def _is_verdict(result: Mapping[str, Any]) -> bool:
    if result["outcome"] == "running":
        return any(check["outcome"] in _RED_CHECKS for notebook in result["notebooks"] for check in notebook["checks"])
    return result["outcome"] != "partial"


def _read(paths: list[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for path in paths:
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            datetime.fromisoformat(result["date"])
            [result[name] for name in ("green", "outcome", "notebooks", "level", "device", "cards")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not what `xpulab run` writes: {error!r}; remove it") from error
        yield path, result


def _age_hours(path: Path, result: Mapping[str, Any], now: datetime) -> float:
    age = (now - datetime.fromisoformat(result["date"])).total_seconds() / 3600
    if age < -0.1:  # clocks of machines differ by seconds, not by minutes
        raise InputError(f"{path}: its date {result['date']} is in the future; set the clock of this machine, and run it again")
    return max(0.0, age)


def _was_only_interrupted(result: Mapping[str, Any]) -> bool:
    """Whether every red notebook was interrupted, and no check had failed before."""
    red = [notebook for notebook in result["notebooks"] if notebook["outcome"] not in _GREEN_NOTEBOOKS]
    outcomes = {check["outcome"] for notebook in red for check in notebook["checks"]}
    interrupted = [notebook for notebook in red if (notebook["reason"] or "").startswith("interrupted")]
    return bool(red) and len(interrupted) == len(red) and not outcomes & {"failed", "broken"}


def _problems(result: Mapping[str, Any]) -> Iterator[Problem]:
    """The red checks, each with the command that repeats it, or why a notebook is red without one."""
    options = _options(result)
    if lost := result.get("lost"):
        expects = f" --expect {lost['expected']}" if lost["expected"] else ""
        command = f"xpulab run --device auto{expects} --level {result['level']}"
        yield Problem("the accelerator", None, f"is lost: {_one_line(lost['problem'])}", command, "; ".join(lost["steps"]))
        return
    for notebook in result["notebooks"]:
        if notebook["outcome"] in _GREEN_NOTEBOOKS:
            continue
        name, remedy = notebook["name"], next((known["remedy"] for known in notebook["explanations"]), None)
        red = [check for check in notebook["checks"] if check["outcome"] in _RED_CHECKS]
        for check in red:
            command = f"xpulab run {name} --check {check['name']} {options}"
            yield Problem(name, check["name"], _compared(check), command, remedy)
        if not red and notebook["outcome"] not in _NOT_ENDED:
            seen = f"is {notebook['outcome']}: {_one_line(str(notebook['reason']))}"
            yield Problem(name, None, seen, f"xpulab run {name} {options}", remedy)


def _options(result: Mapping[str, Any]) -> str:
    """The options of the run: without --cards, notebooks that need several would be skipped."""
    cards = f" --cards {result['cards']}" if result["cards"] > 1 else ""
    seed = f" --seed {result['seed']}" if result.get("seed") else ""
    return f"--device {result['device']}{cards} --level {result['level']}{seed}"


def _compared(check: Mapping[str, Any]) -> str:
    """What a check measured and expected; of a table that of its first red row."""
    row = next((row for row in check["rows"] if row["outcome"] in _RED_CHECKS), None)
    measured = (row or check)["measured"]
    if measured is None:
        return f"is {check['outcome']}: {_one_line(str(check['reason']))}"
    number = f"{measured:.4g}" if isinstance(measured, float) and math.isfinite(measured) else _one_line(str(measured))
    case = f", {_one_line(row['case'])}" if row else ""
    return f"measured {number}{case}, expected {_one_line((row or check)['expected'])}"


def _one_line(text: str) -> str:
    """A text without line ends and control characters, shortened: a scheduler keeps and shows one line."""
    plain = "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
    return plain if len(plain) <= _LONGEST_PART else f"{plain[: _LONGEST_PART - 3]}..."
