"""The verdict of a finished run: may this machine take work, what is red, and the command that repeats it.

A scheduler's gate asks for the last run in a folder, in a fraction of a second; a person asks for the run in a bundle. It only
reads: a job measures, with `xpulab run`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xpulab.errors import InputError

if TYPE_CHECKING:
    from xpulab.fleet.bundle import Bundle

GREEN, RED, UNKNOWN = 0, 1, 2
"""Exit codes: the machine is ready; something is wrong with it; nothing is known that is recent enough."""

_RED_CHECKS = ("failed", "broken", "missing")
_GREEN_NOTEBOOKS = ("passed", "partial", "skipped")
_CLOCKS_DIFFER = timedelta(minutes=6)
_DAMAGED = "not what `xpulab run` writes"
_LONGEST_PART = 100
"""Characters of what a check measured, or expected, or of another reason: the line must end with the command."""


@dataclass(frozen=True)
class Answer:
    """What a run says of its machine.

    code: GREEN, RED or UNKNOWN. line: what was found, for a log.
    problems: why it is red, in the order of the notebooks, each with what it measured and the command that repeats it.
    """

    code: int
    line: str
    problems: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why a scheduler drains this node: check, measured, expected, and the command to repeat; else the line."""
        return f"[node_problem] xpulab {self.problems[0]}" if self.problems else self.line


def gate(folder: Path, max_age_hours: float, now: datetime | None = None) -> Answer:
    """The answer of the last run in this folder, which holds a run's result.json or several runs, a folder each.

    A partial run is no verdict on the machine, nor is one under way, or that was killed: the last whole run counts.
    max_age_hours: a green verdict that is older counts as none; a red one stays red.
    Raises InputError when the folder cannot be read or holds no whole run.
    """
    try:
        paths = [folder / "result.json"] if (folder / "result.json").exists() else sorted(folder.glob("*/result.json"))
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; name one with --out for `xpulab run`, and give it here")
        results = {str(path): _result(str(path), path.read_bytes()) for path in paths}
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from error
    whole = {path: result for path, result in results.items() if _is_verdict(result)}
    if not whole:
        raise InputError(f"{folder}: holds no result.json of a whole run; `xpulab run --out {folder}/first` makes one")
    last = max(whole, key=lambda path: datetime.fromisoformat(whole[path]["date"]))
    return _answer(last, whole[last], f"--out {folder}/NEW", max_age_hours, now or datetime.now(timezone.utc))


def verdict_in(path: Path) -> tuple[Bundle, Answer]:
    """A bundle whose checksums are right, and the verdict of the run in it.

    Raises InputError when the file is no bundle, is damaged, or holds no run.
    """
    from xpulab.fleet import bundle, runs  # they need much that a gate does not, which has a fraction of a second

    name = "run/result.json"
    made, contents = bundle.read(path, kept=name)
    for content in contents.values():
        runs.read_result(content, f"{path}: {name}")
    if name not in contents:
        raise InputError(f"{path}: holds no result.json, so it has no verdict; ask for a bundle of a run")
    where = f"{path}: {name}"
    return made, _answer(where, _result(where, contents[name]), "", math.inf, datetime.now(timezone.utc))


def _answer(where: str, result: Mapping[str, Any], to: str, max_age_hours: float, now: datetime) -> Answer:
    """The answer of a run. where: the file, for an error. to: where a new run is written, as an option.

    A run that was interrupted before anything failed has no verdict, so a job that its user or the scheduler ended drains no
    node. Raises InputError when the result is damaged.
    """
    try:
        age = max(0.0, (now - datetime.fromisoformat(result["date"])).total_seconds() / 3600)
        again = f"xpulab run {_options(result)} {to}".rstrip()
        if _was_only_interrupted(result) or result["outcome"] == "running":
            return Answer(UNKNOWN, f"xpulab: unknown, the last run was interrupted {age:.1f} h ago; run it again")
        if not result["green"]:
            why = (result.get("proof") or {}).get("reason") or "no notebook was green"
            problems = tuple(_problems(result)) or (f"run is red: {_one_line(why)}; rerun: {again}",)
            return Answer(RED, f"xpulab: red {age:.1f} h ago, {problems[0]}", problems)
        checks = sum(notebook["compared"] for notebook in result["notebooks"])
        partial = "a part only: " if result["outcome"] == "partial" else ""
        found = f"{age:.1f} h ago, {partial}{checks} checks at level {result['level']} on {result['device']}"
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{where}: {_DAMAGED}: {error!r}; remove it") from error
    if age > max_age_hours:
        return Answer(UNKNOWN, f"xpulab: unknown, the last verdict is too old: green {found}; run it again")
    return Answer(GREEN, f"xpulab: green {found}")


def _is_verdict(result: Mapping[str, Any]) -> bool:
    """Whether a result says something about the machine: not that of a release, a rehearsal, a part or a run that goes on."""
    return result.get("judges", "machine") == "machine" and result["outcome"] not in ("running", "partial")


def _result(where: str, content: bytes) -> dict[str, Any]:
    """A result.json. Raises InputError, which names `where`."""
    try:
        result: dict[str, Any] = json.loads(content)
        ahead = datetime.fromisoformat(result["date"]) - datetime.now(timezone.utc)
        _is_verdict(result)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{where}: {_DAMAGED}: {error!r}; remove it") from error
    if ahead > _CLOCKS_DIFFER:
        raise InputError(f"{where}: its date {result['date']} is in the future; set this machine's clock, and run it again")
    return result


def _was_only_interrupted(result: Mapping[str, Any]) -> bool:
    """Whether every red notebook was interrupted, and no check had failed before."""
    red = [notebook for notebook in result["notebooks"] if notebook["outcome"] not in _GREEN_NOTEBOOKS]
    outcomes = {check["outcome"] for notebook in red for check in notebook["checks"]}
    interrupted = [notebook for notebook in red if (notebook["reason"] or "").startswith("interrupted")]
    return bool(red) and len(interrupted) == len(red) and not outcomes & {"failed", "broken"}


def _problems(result: Mapping[str, Any]) -> Iterator[str]:
    """The red checks, or why a notebook is red without one, each with the command that repeats it."""
    options = _options(result)
    if lost := result.get("lost"):
        expects = f" --expect {lost['expected']}" if lost["expected"] else ""
        again = f"xpulab run --device auto{expects} --level {result['level']}"
        yield f"the accelerator is lost: {_one_line(lost['problem'])}; rerun: {again}"
        return
    for notebook in result["notebooks"]:
        if notebook["outcome"] in _GREEN_NOTEBOOKS:
            continue
        name = notebook["name"]
        red = [check for check in notebook["checks"] if check["outcome"] in _RED_CHECKS]
        for check in red:
            yield f"{check['name']} {_compared(check)}; rerun: xpulab run {name} --check {check['name']} {options}"
        if not red:
            why = _one_line(str(notebook["reason"]))
            yield f"{name} is {notebook['outcome']}: {why}; rerun: xpulab run {name} {options}"


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
