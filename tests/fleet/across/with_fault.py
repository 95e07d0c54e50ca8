"""Run a module of Python, as `python -m` does, with a fault between nodes: FAULT="KIND NODE [NODE]" in the environment.

Several are separated by semicolons; a task has the first that names its node, or the first of all.

corrupt A       sums that node A receives are wrong, whenever it is not alone
corrupt A B     sums are wrong on A when B takes part too: a bad link
hang A          node A never enters its second sum, whenever it is not alone
die A           the rank on node A is killed in its second sum
firewall A      nobody reaches node A, and A reaches nobody
end A           the task on node A is killed when the first trial starts
import A        Paddle cannot be imported on node A
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time

MINE = os.environ["SLURMD_NODENAME"]
FAULTS = [each.split() for each in os.environ["FAULT"].split(";")]
KIND, *NAMED = next((each for each in FAULTS if MINE in each), FAULTS[0])


def main() -> None:
    from xpulab.fleet.across.node import meeting, rank, task

    trial = []
    seat_of, work, connect = task.seat_of, rank.work, meeting.socket.create_connection

    def noted(group, *place, **more):
        trial[:] = group.nodes
        if KIND == "end" and MINE in NAMED:
            os.kill(os.getpid(), signal.SIGKILL)
        return seat_of(group, *place, **more)

    def connected(address, timeout=None):
        if KIND == "firewall" and NAMED[0] in (MINE, trial[0]):
            raise TimeoutError(110, "Connection timed out")
        return connect(address, timeout)

    def worked(job, notes):
        if NAMED[0] == MINE and len(trial) > 1 and set(NAMED) <= set(trial):
            break_sums()
        return work(job, notes)

    task.seat_of, rank.work, meeting.socket.create_connection = noted, worked, connected
    if KIND == "import" and MINE in NAMED:
        sys.modules["paddle"] = None
    module = sys.argv[sys.argv.index("-m") + 1]
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__")


def break_sums() -> None:
    import paddle.distributed as dist

    all_reduce, calls = dist.all_reduce, []

    def broken(x, **settings):
        calls.append(x)
        if len(calls) == 2 and KIND == "hang":
            time.sleep(1000)
        if len(calls) == 2 and KIND == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        done = all_reduce(x, **settings)
        if KIND == "corrupt" and settings.get("sync_op", True):
            x.set_value(x + 1)
        return done

    dist.all_reduce = broken


if __name__ == "__main__":
    main()
