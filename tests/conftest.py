"""What all tests share: their tier, long ones first, and no kernel that waits for a port that another process took."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SOCKETS = str(Path(__file__).parent / "kernels_on_sockets")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SOCKETS, os.environ.get("PYTHONPATH"))))


TIERS = ("unit", "integration", "notebooks", "real")
"""unit: in this process, or in one short other one. integration: starts processes that last: kernels, ranks, simulated cards,
the command line. notebooks: executes the committed notebooks. real: with a pretrained model from the cache, only when asked for
by -m real; such a test has no other tier."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without a tier is a unit test; the longest tests start first."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker(pytest.mark.unit)
    items.sort(key=lambda item: TIERS.index(tier_of(item)), reverse=True)


def tier_of(item: pytest.Item) -> str:
    """The tier of a test."""
    return next(tier for tier in TIERS if item.get_closest_marker(tier))
