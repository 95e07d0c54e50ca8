"""Copies to host memory that a device makes in the background, which the CPU does not."""

from __future__ import annotations

import paddle
import pytest

from xpulab.chapters.memory import offloading
from xpulab.chapters.memory.offloading import Offloader

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


class Task:
    """A copy that is not complete before somebody waits."""

    def __init__(self):
        self.waited = 0

    def is_completed(self):
        return bool(self.waited)

    def cpu_wait(self):
        self.waited += 1


@pytest.fixture
def tasks(monkeypatch):
    """The copies of a device that has an asynchronous loader, in the order in which they were started."""
    started = []

    def copied(tensor, loader):
        started.append(Task())
        return tensor.clone(), started[-1]

    monkeypatch.setattr(offloading, "_loader_of_the_device", lambda: ("loader", offloading.ASYNCHRONOUS))
    monkeypatch.setattr(offloading.manipulation, "async_offload", copied)
    monkeypatch.setattr(offloading.manipulation, "async_reload", copied)
    return started


def test_an_asynchronous_loader_is_waited_for_before_a_tensor_comes_back(tasks):
    offloader = Offloader()
    kept = offloader.to_host(paddle.ones([2]))
    assert kept.source is not None
    assert offloader.to_device(kept).tolist() == [1.0, 1.0]
    assert [task.waited for task in tasks] == [1, 1]


def test_finish_waits_for_all_copies_that_were_started(tasks):
    offloader = Offloader()
    kept = [offloader.to_host(paddle.ones([2])) for _ in range(3)]
    offloader.finish()
    assert [task.waited for task in tasks] == [1, 1, 1]
    assert [each.source for each in kept] == [None] * 3
