"""A new ledger for each test, and a display that stores the outputs of checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from xpulab.checks.ledger import Ledger, ledger
from xpulab.records import known_issues
from xpulab.records.record import Record, record_in


class Shown:
    """The displayed outputs: data by media type, and metadata."""

    def __init__(self) -> None:
        self.outputs: list[tuple[dict[str, str], dict[str, Any]]] = []

    def display(self, data: dict[str, str], *, raw: bool, metadata: dict[str, Any]) -> None:
        assert raw, "a check's output is given by media type"
        self.outputs.append((data, metadata))

    @property
    def text(self) -> str:
        """The last output as plain text."""
        return self.outputs[-1][0]["text/plain"]

    @property
    def html(self) -> str | None:
        """The last output as HTML, or None when it has none."""
        return self.outputs[-1][0].get("text/html")

    @property
    def record(self) -> Record:
        """The record in the last output's metadata."""
        record = record_in(self.outputs[-1][1])
        assert record is not None, "the output holds no record"
        return record


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """The outputs of the checks in a test."""
    shown = Shown()
    monkeypatch.setattr("IPython.display.display", shown.display)
    return shown


@pytest.fixture(autouse=True)
def _own_ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has its own records, device and known issues."""
    monkeypatch.setattr(ledger, "__dict__", vars(Ledger()))
    known_issues.known_issue.cache_clear()
    yield
    known_issues.known_issue.cache_clear()
