"""Verdicts with given values, and rounds made of them, for the tests of a soak."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from xpulab.harness.execute import Run
from xpulab.harness.judge import Verdict
from xpulab.records.record import Record
from xpulab.soak.rounds import FAILED, PASSED, Found, Memory, Part, Round, Sample
from xpulab.soak.values import Place, Problem

BEGIN = datetime(2026, 11, 22, 3, 0, tzinfo=timezone.utc)


@pytest.fixture
def verdict() -> Callable[..., Verdict]:
    """verdict(record, ...): a notebook "02_sft" with these records, green unless outcome says otherwise."""

    def make(*records: Record, outcome: str = "passed", stopped: str | None = None, reason: str = "") -> Verdict:
        run = Run("cpu", "quick", 1, 2.0, 30.0, stopped)
        reasons = tuple(filter(None, [stopped, reason]))
        return Verdict("02_sft", "SFT", outcome, run, records, None, reasons, (), None)

    return make


@pytest.fixture
def round_of() -> Callable[..., Round]:
    """round_of(number, problem, ...): a round of one minute with these problems and a card of 60 + number degrees."""

    def make(number: int, *problems: Problem, repeated: int = 5, **changed: object) -> Round:
        parts = (Part("card 0", 60.0 + number, 1450.0, 90.0, 504),)
        began = BEGIN + timedelta(minutes=number)
        found = tuple(Found(problem, number, 0, began, parts) for problem in problems)
        values = {
            "number": number,
            "seed": 0,
            "began": began,
            "seconds": 50.0 + number,
            "outcome": FAILED if found else PASSED,
            "checks": 7,
            "repeated": repeated,
            "samples": (Sample(began, parts),),
            "memory": Memory(2000 + number, 150, 0, 60000),
            "found": found,
        }
        return Round(**{**values, **changed})

    return make


@pytest.fixture
def problem() -> Callable[..., Problem]:
    """problem(check): a red one of 02_sft."""
    return lambda check="sft.recall", kind="red", case="": Problem(kind, Place("02_sft", check, case), "measured 3")
