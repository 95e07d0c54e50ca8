"""A run has a fork server of its own, which ends with it; a cold one, and one on cards, has none."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from xpulab import warm
from xpulab.harness import fork_server
from xpulab.harness.fork_server import kernel_environment

pytestmark = pytest.mark.integration


def test_a_run_has_its_own_until_the_end(monkeypatch):
    monkeypatch.setattr(warm, "PRELOAD", ("colorsys",))
    with fork_server.started("sim") as begun, kernel_environment("sim", begun) as variables:
        process = psutil.Process(begun.server.pid)
        assert variables[warm.ADDRESS] == begun.server.address
        assert Path(begun.server.address).is_relative_to(begun.folder)
    assert not process.is_running()
    assert not begun.folder.exists()


@pytest.mark.parametrize(("device", "cold"), [("cpu", True), ("gpu", False), ("xpu", False)])
def test_a_cold_run_and_one_on_cards_have_none_also_where_another_one_runs(monkeypatch, device, cold):
    monkeypatch.setenv(warm.ADDRESS, "/that/of/a/notebook")
    with fork_server.started(device, cold) as begun, kernel_environment(device, begun) as variables:
        assert begun.server is None and warm.ADDRESS not in variables
