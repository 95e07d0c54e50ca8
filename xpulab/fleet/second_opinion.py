"""What `xpulab judge` prints: the new verdict beside the claimed one, and every difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xpulab.fleet.judged import Judged
from xpulab.harness.report.result import to_json
from xpulab.harness.report.text import format_result

SCHEMA = 1
_SHOWN = 20
"""Differences that a person is shown; the JSON has all."""


def format_judged(judged: Sequence[Judged]) -> str:
    """For a terminal."""
    return "\n\n".join("\n".join(_lines(each)) for each in judged)


def judged_to_json(judged: Sequence[Judged]) -> dict[str, Any]:
    """For programs; the schema is data/schema/judged.schema.json."""
    return {
        "schema": SCHEMA,
        "green": all(each.is_green for each in judged),
        "runs": [
            {
                "name": each.name,
                "claimed": {"green": each.claimed["green"], "outcome": each.claimed["outcome"]},
                "judged": {"green": each.result.is_green, "outcome": each.result.outcome},
                "differences": list(each.differences),
                "notes": list(each.notes),
                "result": to_json(each.result),
            }
            for each in judged
        ],
    }


def _lines(judged: Judged) -> Iterator[str]:
    if judged.name:
        yield f"{judged.name}:"
    yield format_result(judged.result)
    ours, theirs = (_verdict(green, outcome) for green, outcome in _verdicts(judged))
    yield f"{judged.result.node or 'unknown node'}, {judged.result.date}: claimed {theirs}, judged again {ours}"
    yield from (f"  note: {note}" for note in judged.notes)
    if judged.differences:
        yield f"  {len(judged.differences)} differences between the claim, the notebooks and their records:"
        yield from (f"    {each}" for each in judged.differences[:_SHOWN])
        if len(judged.differences) > _SHOWN:
            yield f"    and {len(judged.differences) - _SHOWN} more; --json has all"


def _verdicts(judged: Judged) -> Iterator[tuple[bool, str]]:
    yield judged.result.is_green, judged.result.outcome
    yield judged.claimed["green"], judged.claimed["outcome"]


def _verdict(green: bool, outcome: str) -> str:
    return f"{'green' if green else 'RED'} ({outcome})"
