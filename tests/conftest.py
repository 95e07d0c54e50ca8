"""What all tests share: long ones start first, and no kernel of theirs waits for a port that another one took."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SOCKETS = str(Path(__file__).parent / "kernels_on_sockets")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SOCKETS, os.environ.get("PYTHONPATH"))))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that run a real notebook take half a minute each: they go first."""
    items.sort(key=lambda item: "notebooks" not in item.path.parts)
