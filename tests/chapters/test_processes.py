"""Cases that run in processes of their own, or one after the other in a few; runs of ranks side by side."""

from __future__ import annotations

import threading

import pytest

from xpulab.chapters.shared import processes

GPU = "gpu"
"""A device on which cases run in this process."""


def in_parts(function, parts, device):
    """Stands in for run_each: notes how many processes were asked for."""
    parts = list(parts)
    asked.append(len(parts))
    return [function(part) for part in parts]


asked: list[int] = []


@pytest.fixture(autouse=True)
def none_asked():
    asked.clear()


def test_cases_share_as_many_processes_as_run_at_the_same_time(monkeypatch):
    monkeypatch.setattr(processes, "whole_cores", lambda: 3)
    processes.run_in_turn(str, range(7), GPU, run=in_parts)
    processes.run_in_turn(str, range(2), GPU, run=in_parts)
    monkeypatch.setattr(processes, "whole_cores", lambda: 1)
    processes.run_in_turn(str, range(7), GPU, run=in_parts)
    assert asked == [3, 2, 1]


@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_on_real_cards_a_run_begins_when_the_one_before_has_ended(device):
    events = []

    def run(name):
        events.append(f"{name} begins in {threading.current_thread().name}")
        events.append(f"{name} ends")
        return name

    assert processes.side_by_side([lambda: run("a"), lambda: run("b")], device) == ["a", "b"]
    here = threading.current_thread().name
    assert events == [f"a begins in {here}", "a ends", f"b begins in {here}", "b ends"]


def test_the_error_of_the_first_function_that_fails_is_raised():
    def fail(text):
        raise ValueError(text)

    with pytest.raises(ValueError, match="the first"):
        processes.side_by_side([lambda: 1, lambda: fail("the first"), lambda: fail("the second")], "cpu")
