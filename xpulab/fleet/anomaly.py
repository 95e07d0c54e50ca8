"""An anomaly in a comparison: one thing that is wrong with a run, or unlike others, and the command that measures it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xpulab.fleet.runs import Run
from xpulab.messages import N_
from xpulab.records.format import format_value
from xpulab.records.record import RED


@dataclass(frozen=True)
class Anomaly:
    """One thing that a comparison found.

    node: the name of its run; "" for what is not of one run.
    check, case: where, "" for a whole run or notebook, and for a check without rows.
    kind: a few words, the same for all findings of a kind.
    measured, expected: as text; expected is a bound, what the majority measured, or what was measured before.
    sentence: all of it in one sentence. repeat: the command that measures it again, on that node.
    """

    node: str
    check: str
    case: str
    kind: str
    measured: str
    expected: str
    sentence: str
    repeat: str


def repeat(run: Run, notebook: str = "", check: str = "") -> str:
    """The command that repeats a check as it ran in this run, else the notebook, else the whole run."""
    result = run.result
    words = ["xpulab", "run", *([notebook] if notebook else ()), *(["--check", check] if check else ())]
    words += ["--device", result["device"], "--cards", str(result["cards"]), "--level", result["level"]]
    return shlex.join([*words, *(["--seed", str(result["seed"])] if result["seed"] else ())])


def place(check: str, case: str) -> str:
    """A check and its case as text."""
    return f"{check}, {case}" if case else check


def first_red(check: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Of a red check, or of its first red row: case, measured and expected as text, and a sentence."""
    row = next((row for row in check["rows"] if row["outcome"] in RED), None)
    part, case = row or check, row["case"] if row else ""
    at, expected = place(check["name"], case), part["expected"]
    if part["measured"] is None:
        return case, "nothing", str(expected), format_red(at, part["outcome"], part["reason"] or check["reason"])
    measured = format_value(part["measured"])
    return (
        case,
        measured,
        str(expected),
        N_("{at} measured {measured}, expected {expected}", at=at, measured=measured, expected=expected),
    )


def format_red(name: str, outcome: str, reason: str | None) -> str:
    """The sentence about a check or a notebook that measured nothing."""
    sentences = {
        "failed": N_("{name} is failed: {reason}", name=name, reason=reason),
        "broken": N_("{name} is broken: {reason}", name=name, reason=reason),
        "missing": N_("{name} is missing: {reason}", name=name, reason=reason),
    }
    return sentences[outcome]
