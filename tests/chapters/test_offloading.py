"""Copies to host memory and back: values, layout, and what is left on the device."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.memory import offloading
from xpulab.chapters.memory.offloading import HostCopy, Offloader

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


def test_a_copy_does_not_see_later_writes():
    tensor, offloader = paddle.ones([4]), Offloader()
    kept = offloader.to_host(tensor)
    tensor.fill_(-1.0)
    assert offloader.to_device(kept).tolist() == [1.0] * 4


def test_a_transposed_tensor_comes_back_with_its_strides():
    tensor, offloader = paddle.arange(6).reshape([2, 3]).t(), Offloader()
    back = offloader.to_device(offloader.to_host(tensor))
    assert (back.tolist(), back.strides) == (tensor.tolist(), tensor.strides)


@pytest.mark.parametrize("view", ["rows 2 and 3", "every second row", "a column"])
def test_a_part_of_other_memory_stays_where_it_is(view):
    tensor, offloader = offloading.VIEWS[view](paddle.arange(24.0).reshape([6, 4])), Offloader()
    assert offloader.to_host(tensor) is tensor
    assert offloader.to_device(tensor) is tensor
    assert offloader.left == 1


@pytest.mark.parametrize("view", offloading.VIEWS)
def test_gradients_through_offloaded_views_are_right(view):
    offloader = Offloader()
    found = offloading.gradient_of_view(view, (offloader.to_host, offloader.to_device))
    assert np.array_equal(found, offloading.gradient_of_view(view, None))


def test_a_cpu_says_that_it_waits_for_copies():
    assert Offloader().how == "copies while the program waits: the CPU has one memory only"


def test_finishing_a_copy_waits_for_it_and_frees_its_source():
    task, tensor = Task(), paddle.ones([2])
    copy = HostCopy(tensor, tensor.place, (0,), task, tensor)
    copy.finish()
    copy.finish()
    assert (task.waited, copy.source) == (1, None)


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


def test_no_round_sees_what_was_written_later():
    assert offloading.overtaken_rounds([1.0, 2.0], 8) == []
