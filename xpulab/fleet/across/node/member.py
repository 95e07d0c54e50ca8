"""One rank of one trial: it takes its environment, meets the others, connects, and runs the sections.

On the CPU and on simulated cards it is a fork of its task, which has imported Paddle; on a GPU or an XPU a new process.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xpulab.fleet.across.node.meeting import met
from xpulab.fleet.across.node.notes import Notes
from xpulab.ranks import environment
from xpulab.ranks.environment import Seat


@dataclass(frozen=True)
class Job:
    """What a rank is to do. meeting: "address:port". folder: for its files. The other fields: as in Seat, Setup and Group."""

    seat: Seat
    meeting: str
    seed: int
    trial_seconds: float
    rates: bool
    folder: str

    def dumps(self) -> str:
        """As text, for a new process."""
        return json.dumps(asdict(self))


def loads(text: str) -> Job:
    """The job in a text of Job.dumps."""
    fields: dict[str, Any] = json.loads(text)
    seat = fields.pop("seat")
    return Job(seat=Seat(**{**seat, "endpoints": tuple(seat["endpoints"])}), **fields)


def take_environment(job: Job) -> None:
    """Make this process's environment that of the rank: inside the process, since a list of thousands of ranks is too long for
    a variable of a program that is started."""
    wanted = environment.of_seat(environment.before_launch(os.environ), job.seat, Path(job.folder))
    os.environ.clear()
    os.environ.update(wanted)


def work(job: Job, notes: Notes) -> int:
    """Be the rank; returns the exit code. Everything that it finds is in the notes."""
    try:
        take_environment(job)
        from xpulab.fleet.across.node import sections
        from xpulab.ranks.inside import select_card

        select_card(job.seat.device, job.seat.local_ranks)
        notes.started()
        _connect(job, notes)
        seat = job.seat
        me = sections.Member(seat.rank, len(seat.endpoints), seat.local_ranks, seat.device, job.seed)
        sections.run(me, notes, job.rates)
        notes.done()
    except BaseException as error:
        from xpulab.checks.compare import first_line

        notes.raised(f"{type(error).__name__}: {first_line(error)}")
        return 1
    return 0


def _connect(job: Job, notes: Notes) -> None:
    ranks = len(job.seat.endpoints)
    if ranks == 1:
        return
    import paddle.distributed as dist

    notes.step(f"meeting at {job.meeting}")
    store_port = int(job.seat.master.rpartition(":")[2])
    with met(job.seat.rank, ranks, job.meeting, store_port, job.trial_seconds * 0.7):
        notes.step(f"connecting to {job.seat.master}")
        dist.init_parallel_env()


if __name__ == "__main__":
    sys.exit(work(loads(sys.stdin.read()), Notes(int(sys.argv[1]))))
