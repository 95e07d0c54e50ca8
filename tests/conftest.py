"""What all tests share: long ones start first, so that they do not end last on their own."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that run a real notebook take half a minute each: they go first."""
    items.sort(key=lambda item: "notebooks" not in item.path.parts)
