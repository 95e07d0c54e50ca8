"""The loss line is for a person who watches, and leaves nothing behind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from xpulab.notebook import live


@pytest.fixture
def request_metadata(monkeypatch):
    """The metadata of the request that runs the cell, as the kernel sees it."""
    metadata: dict[str, object] = {}
    kernel = SimpleNamespace(get_parent=lambda channel: {"metadata": metadata} if channel == "shell" else {})
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    return metadata


def test_a_cell_that_jupyterlab_runs_is_watched(request_metadata):
    request_metadata.update(deletedCells=[], recordTiming=False, cellId="1")
    assert live.is_watched()


def test_a_cell_that_nbclient_runs_is_not_watched(request_metadata):
    request_metadata.update(cellId="1")
    assert not live.is_watched()


def test_outside_of_a_kernel_nobody_watches(monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    assert not live.is_watched()


def test_the_line_has_step_loss_and_a_curve_of_the_losses():
    assert live.format_line(3, 10, [8.0, 4.5, 1.0]) == "step 3 of 10  loss 1.0000  █▅▁"


def test_a_line_of_equal_losses():
    assert live.format_line(2, 2, [1.5, 1.5]) == "step 2 of 2  loss 1.5000  ▁▁"
