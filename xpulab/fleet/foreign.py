"""JSON that another machine wrote: what cannot be read, and what would hurt whoever computes with it, is one kind of error."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

MOST_VALUES = 500_000
"""Commas of a text: a run of all notebooks at level standard has 43,000, and a value may take 100 times its text in memory."""


def loads(text: str) -> Any:
    """The value of a JSON text; its numbers are finite, also as a double.

    Raises ValueError for any other text, and for one of too many or too deeply nested values.
    """
    if text.count(",") > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values")
    try:
        return json.loads(text, parse_int=partial(_finite, kind=int), parse_float=_finite, parse_constant=_finite)
    except (RecursionError, MemoryError) as error:
        raise ValueError("too large, or too deeply nested") from error


def _finite(text: str, kind: type[float] = float) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:20]}: no number of a double")
    return kind(text)
