"""A run uses a fork server that runs already when it is of this installation; otherwise its own, which ends with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from xpulab import warm
from xpulab.harness import fork_server
from xpulab.harness.run import kernel_environment

pytestmark = pytest.mark.integration


@pytest.fixture
def small(monkeypatch):
    """A fork server of a run needs one small module only."""
    monkeypatch.setattr(warm, "PRELOAD", ("colorsys",))


@pytest.fixture
def running(small, monkeypatch):
    """A fork server that another command has started, whose address the environment holds."""
    with warm.ForkServer(("colorsys",)) as server:
        monkeypatch.setenv(warm.ADDRESS, server.address)
        yield server


def test_one_that_runs_already_is_used_and_stays(running):
    with fork_server.started("cpu") as begun:
        assert (begun.server, begun.address) == (None, running.address)
        assert begun.folder.is_dir()
    assert not begun.folder.exists() and warm.answers(running.address, 30)
    with kernel_environment("cpu") as variables:
        assert variables[warm.ADDRESS] == running.address
    with fork_server.started("cpu", cold=True) as server, kernel_environment("cpu", server) as variables:
        assert warm.ADDRESS not in variables


@pytest.mark.parametrize(
    "changed",
    [
        lambda patch: patch.setattr(sys, "prefix", "/another/installation"),
        lambda patch: patch.setattr(warm, "PRELOAD", ("colorsys", "a_module_that_it_has_not")),
        lambda patch: patch.setenv(warm.ADDRESS, "/nothing/is/here"),
    ],
    ids=["another installation", "other imports", "no answer"],
)
def test_one_that_does_not_fit_is_not_used(running, monkeypatch, changed):
    changed(monkeypatch)
    assert not fork_server.fits(os.environ[warm.ADDRESS])


def test_without_one_the_run_has_its_own_until_the_end(monkeypatch):
    monkeypatch.delenv(warm.ADDRESS, raising=False)
    with fork_server.started("sim") as begun:
        process = psutil.Process(begun.server.pid)
        assert begun.address == begun.server.address
        assert Path(begun.address).is_relative_to(begun.folder)
    assert not process.is_running()
    assert not begun.folder.exists()


@pytest.mark.parametrize(("device", "cold"), [("cpu", True), ("gpu", False), ("xpu", False)])
def test_a_cold_run_and_one_on_cards_have_none(running, device, cold):
    with fork_server.started(device, cold) as begun:
        assert (begun.server, begun.address) == (None, None)
