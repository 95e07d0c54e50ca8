"""What a round of a soak runs, and which of its values are measurements of time or memory: data/soak.yaml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.plan import Plan, make_plans
from xpulab.messages import N_
from xpulab.soak import LEVEL

ROUND_LEVEL = "quick"
"""The level of the sections that a round runs: short rounds name the moment of a difference best."""


@dataclass(frozen=True)
class Selection:
    """The content of data/soak.yaml.

    checks: globs of the checks that a round runs. without: globs of those of them that it does not ask for.
    varying: values that two rounds with the same seed need not share: globs of a check's name and of its row's, "" for a check
        without rows.
    """

    checks: tuple[str, ...]
    without: tuple[str, ...]
    varying: tuple[tuple[str, str], ...]

    def varies(self, check: str, case: str) -> bool:
        """Whether this value need not repeat."""
        return any(fnmatchcase(check, of_check) and fnmatchcase(case, of_case) for of_check, of_case in self.varying)


@cache
def selection() -> Selection:
    """What data/soak.yaml says. Raises InputError with file and line when it does not fit its schema."""
    stored = files.load_yaml(files.data("soak.yaml"), files.data("schema", "soak.schema.json"))
    varying = tuple((each["check"], each.get("case", "*")) for each in stored["varying"])
    return Selection(tuple(stored["checks"]), tuple(each["check"] for each in stored["without"]), varying)


def make_soak_plans(notebooks: Sequence[str], checks: Sequence[str]) -> list[Plan]:
    """The plans of one round: the sections of these checks, or of those in data/soak.yaml when none is given.

    Raises InputError as make_plans does, and when the notebooks have none of the checks.
    """
    if checks:
        return make_plans(notebooks, ROUND_LEVEL, checks)
    chosen = selection()
    at_level = make_plans(notebooks, ROUND_LEVEL)
    names = [
        check.name
        for plan in at_level
        for check in plan.checks
        if _matches(check.name, chosen.checks) and not _matches(check.name, chosen.without)
    ]
    if not names:
        raise InputError(
            N_(f"none of these notebooks has a check that a soak runs ({', '.join(chosen.checks)}); name some with --check")
        )
    return make_plans(notebooks, ROUND_LEVEL, names)


def check_hours(hours: float | None, level: str) -> None:
    """Raises InputError for hours that are not above 0 or not finite, and for hours at another level than soak."""
    if hours is None:
        return
    if level != LEVEL:
        raise InputError(N_(f"--hours {hours:g}: only with --level {LEVEL}; a run at level {level} ends by itself"))
    if not (0 < hours < math.inf):
        raise InputError(N_(f"--hours {hours:g}: must be a number above 0; leave it out to run until it is interrupted"))


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, each) for each in globs)
