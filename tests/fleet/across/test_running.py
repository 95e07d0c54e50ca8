"""A rank of a trial as a new process, as on a GPU or an XPU: its report when it passes, and when it is ended."""

from __future__ import annotations

import select
from pathlib import Path

import psutil
import pytest

from xpulab.fleet.across.links import LATE, PASSED, Group, Setup
from xpulab.fleet.across.node import rank as ranks_of_a_task
from xpulab.fleet.across.node.job import Job
from xpulab.fleet.across.node.rank import Running, new_folder
from xpulab.fleet.across.node.task import seat_of
from xpulab.ranks import environment

pytestmark = pytest.mark.integration


@pytest.fixture
def start(monkeypatch):
    """A function that starts rank `local` of two on one node in a new process."""
    monkeypatch.setattr(ranks_of_a_task, "FORKED", ())
    started = []
    with environment.held_ports(1) as (port,):
        pass  # the ranks themselves take it, and the next ones

    def begin(local):
        setup = Setup("cpu", 2, {"a": environment.HOST}, 0, 60.0, 60.0)
        seat, meeting = seat_of(Group(1, ("a",), port, False), setup, "a", local, card=local)
        job = Job(seat, meeting, 0, 60.0, False, new_folder())
        started.append(Running(1, "a", job, 60.0))
        return started[-1], Path(job.folder)

    yield begin
    for each in started:
        each.close()


def members():
    """The processes of ranks that this process has started."""
    found = psutil.Process().children(recursive=True)
    return [each for each in found if "xpulab.fleet.across.node.rank" in " ".join(each.cmdline())]


def read_until_the_end(rank):
    while select.select([rank.descriptor], [], [], 60)[0] and not rank.read():
        pass


def test_two_new_processes_compute_together_and_leave_nothing(start):
    ranks = [start(local) for local in (0, 1)]
    for rank, _ in ranks:
        read_until_the_end(rank)
    reports = [rank.report() for rank, _ in ranks]
    assert [(each.outcome, each.rank, each.bad) for each in reports] == [(PASSED, 0, []), (PASSED, 1, [])], reports
    assert reports[0].passed >= 14 and "training, step 4" not in reports[0].skipped


def test_a_rank_whose_partner_never_comes_is_ended(start):
    rank, folder = start(1)
    while "meeting" not in rank.report(LATE).step:
        assert select.select([rank.descriptor], [], [], 60)[0] and not rank.read()
    report = rank.report(LATE)
    assert (report.outcome, report.step.startswith("meeting at 127.0.0.1:")) == (LATE, True)
    assert members()
    rank.close()
    rank.close = lambda: None
    assert not folder.exists() and not members()
