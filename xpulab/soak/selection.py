"""What a round of a soak runs, and which checks measure time or memory, so that they need not repeat: data/soak.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.plan import Plan, make_plans
from xpulab.messages import N_

ROUND_LEVEL = "quick"
"""The level of the sections that a round runs: short rounds name the moment of a difference best."""


@cache
def selection() -> Any:
    """The content of data/soak.yaml. Raises InputError with file and line when it does not fit its schema."""
    return files.load_yaml(files.data("soak.yaml"), files.data("schema", "soak.schema.json"))


def varies(check: str) -> bool:
    """Whether two rounds with the same seed may measure otherwise."""
    return _matches(check, [each["check"] for each in selection()["varying"]])


def make_soak_plans(notebooks: Sequence[str], checks: Sequence[str]) -> list[Plan]:
    """The plans of one round: the sections of these checks, or of those in data/soak.yaml when none is given.

    Raises InputError as make_plans does, and when the notebooks have none of the checks.
    """
    if checks:
        return make_plans(notebooks, ROUND_LEVEL, checks)
    globs = selection()["checks"]
    names = [check.name for plan in make_plans(notebooks, ROUND_LEVEL) for check in plan.checks if _matches(check.name, globs)]
    if not names:
        raise InputError(
            N_("none of these notebooks has a check that a soak runs ({globs}); name some with --check", globs=", ".join(globs))
        )
    return make_plans(notebooks, ROUND_LEVEL, names)


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, each) for each in globs)
