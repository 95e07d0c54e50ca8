"""Samplers and loaders on ranks: the cases with a worker come first, and every case keeps its place."""

from __future__ import annotations

from typing import Any

import paddle
import pytest

from xpulab.release.auto_parallel import loader_cases


@pytest.fixture
def workers_asked_for(monkeypatch) -> list[int]:
    """How many workers each DataLoader that is made has, in their order; all of them read without one."""
    asked: list[int] = []
    real = paddle.io.DataLoader

    def make(rows: Any, batch_sampler: Any, num_workers: int) -> Any:
        asked.append(num_workers)
        return real(rows, batch_sampler=batch_sampler)

    monkeypatch.setattr(paddle.io, "DataLoader", make)
    return asked


def test_no_loader_has_read_in_a_thread_when_a_worker_starts(workers_asked_for: list[int]):
    cases = loader_cases.samplers().cases("smoke", 0)
    found = loader_cases.read_by_samplers(cases)
    assert 1 in workers_asked_for and 0 in workers_asked_for
    assert workers_asked_for == sorted(workers_asked_for, reverse=True)
    assert [len(each) for each in found] == [case.ranks for case in cases]
