"""All rounds share one fork server, and one that has ended is replaced."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import psutil
import pytest

from xpulab import warm
from xpulab.harness.soak import kernels
from xpulab.harness.soak.kernels import Kernels

pytestmark = pytest.mark.integration


@pytest.fixture
def servers(monkeypatch):
    """The fork servers that were started, which import nothing."""
    started = []

    @contextmanager
    def environment(device, cold):
        with warm.ForkServer(preload=("json",)) as server:
            started.append(server)
            yield {warm.ADDRESS: server.address}

    monkeypatch.setattr(kernels, "kernel_environment", environment)
    return started


def test_two_rounds_use_one_fork_server_which_ends_with_the_soak(servers):
    with Kernels("cpu", cold=False) as shared:
        with shared.of_round() as first, shared.of_round() as second:
            assert first is second
        assert (len(servers), shared.started) == (1, 1)
    assert not psutil.pid_exists(servers[0].pid)


def test_a_fork_server_that_was_killed_is_replaced(servers):
    with Kernels("cpu", cold=False) as shared:
        with shared.of_round():
            os.kill(servers[0].pid, signal.SIGKILL)
            psutil.wait_procs([psutil.Process(servers[0].pid)], timeout=10)
        with shared.of_round() as replaced:
            assert replaced[warm.ADDRESS] == servers[1].address
        assert shared.started == 2


def test_cold_kernels_need_no_fork_server():
    with Kernels("cpu", cold=True) as shared, shared.of_round() as environment:
        assert warm.ADDRESS not in environment
        assert shared.started == 0
