"""Many runs of a 4-rank job on simulated cards, one after another: none may hang or leave processes, files or shared memory.

    python tools/benchmarks/sim_soak.py            # 200 runs; --runs N, --kill-every K (0: never)

Each run forks 4 ranks from this process, which has imported Paddle. They initialize paddle.distributed, run collectives and
messages, check the values, and end. In every K-th run one rank is killed between two collectives: the others must end by
themselves with an error that names it. The process group of a run is killed after it. Prints a line every 20 runs, and at
the end how many segments, files and processes are left and how much shared memory. Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import statistics
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("XPULAB_SIM_TIMEOUT", "30")

from xpulab import sim
from xpulab.sim.shared_memory import FOLDER, segments

RANKS = 4
sim.load(RANKS)

import paddle  # noqa: E402 - the ranks are forked from a process that has imported it

SECONDS = 60.0
"""The timeout of a run."""


def work(rank: int, killed_rank: int | None) -> None:
    """One small job. The rank `killed_rank` kills itself between two collectives; the others wait for it."""
    import numpy as np
    import paddle.distributed as dist

    dist.init_parallel_env()
    for step in range(3):
        data = paddle.arange(200_000, dtype="float32") % 100 + rank
        dist.all_reduce(data)
        np.testing.assert_array_equal(data.numpy(), (np.arange(200_000) % 100) * RANKS + 6)
        if step == 1 and rank == killed_rank:
            os.kill(os.getpid(), signal.SIGKILL)
        parts = paddle.full([RANKS, 1000], float(rank))
        got = paddle.empty_like(parts)
        dist.alltoall_single(got, parts)
        np.testing.assert_array_equal(got.numpy()[:, 0], np.arange(RANKS))
        received = paddle.zeros([300_000])
        send: Any = dist.isend  # whose annotation P2POp does not accept
        messages = [
            dist.P2POp(send, paddle.full([300_000], float(rank)), (rank + 1) % RANKS),
            dist.P2POp(dist.irecv, received, (rank - 1) % RANKS),
        ]
        for task in dist.batch_isend_irecv(messages):
            task.wait()
        assert (received.numpy() == (rank - 1) % RANKS).all()
    dist.barrier()


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nothing listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


def environment(rank: int, ports: list[int]) -> dict[str, str]:
    """What a launcher gives a rank. ports: one for each rank, and one for the store."""
    *own, master = ports
    endpoints = [f"127.0.0.1:{port}" for port in own]
    return {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_MASTER": f"127.0.0.1:{master}",
        "FLAGS_selected_sims": str(rank),
        "PADDLE_DISTRI_BACKEND": "xccl",
        "PADDLE_XCCL_BACKEND": "sim",
    }


def run(log: Any, killed_rank: int | None) -> tuple[list[int], bool]:
    """The exit statuses of the ranks (negative: a signal), and whether all ended before the timeout. No process is left."""
    ports = free_ports(RANKS + 1)
    processes: list[int] = []
    for rank in range(RANKS):
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.setpgid(0, processes[0] if processes else 0)
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                os.environ.update(environment(rank, ports))
                work(rank, killed_rank)
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        os.setpgid(process, processes[0] if processes else process)
        processes.append(process)
    ends = {os.pidfd_open(process): process for process in processes}
    statuses: dict[int, int] = {}
    until = time.monotonic() + SECONDS
    while ends and (left := until - time.monotonic()) > 0:
        for end in select.select(list(ends), [], [], left)[0]:
            process = ends.pop(end)
            os.close(end)
            if process != processes[0]:  # the first process leads the group: wait for it last
                statuses[process] = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    in_time = not ends
    for end in ends:
        os.close(end)
    os.killpg(processes[0], signal.SIGKILL)
    for process in processes:
        if process not in statuses:
            statuses[process] = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return [statuses[process] for process in processes], in_time


def shared_memory_used() -> int:
    """Bytes of shared memory in use on this machine."""
    about = os.statvfs(FOLDER)
    return (about.f_blocks - about.f_bfree) * about.f_frsize


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kill-every", type=int, default=10)
    chosen = parser.parse_args()

    names, before, files = segments(), shared_memory_used(), len(os.listdir("/proc/self/fd"))
    seconds: list[float] = []
    killed: list[float] = []
    problems: list[str] = []
    with tempfile.TemporaryFile("w+") as log:
        for number in range(1, chosen.runs + 1):
            killed_rank = number // chosen.kill_every % RANKS if chosen.kill_every and number % chosen.kill_every == 0 else None
            log.seek(0)
            log.truncate()
            start = time.monotonic()
            statuses, in_time = run(log, killed_rank)
            (killed if killed_rank is not None else seconds).append(time.monotonic() - start)
            log.seek(0)
            output = log.read()
            if not in_time:
                problems.append(f"run {number} hung: {statuses}\n{output[-3000:]}")
            elif killed_rank is None and statuses != [0] * RANKS:
                problems.append(f"run {number} failed: {statuses}\n{output[-3000:]}")
            elif killed_rank is not None and not ended_as_killed(statuses, killed_rank, output):
                problems.append(f"run {number}, rank {killed_rank} killed: {statuses}\n{output[-3000:]}")
            if left := [path.name for path in segments() if path not in names]:
                problems.append(f"run {number} left segments: {left}")
            if number % 20 == 0:
                print(f"{number} runs, {len(problems)} problems, median {statistics.median(seconds):.2f} s", flush=True)
    print(f"{len(seconds)} runs of {RANKS} ranks: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    if killed:
        print(f"{len(killed)} runs with a rank killed: median {statistics.median(killed):.2f} s, longest {max(killed):.2f} s")
    print(
        f"shared memory used before {before:,} bytes, after {shared_memory_used():,} bytes; "
        f"segments left: {len(segments()) - len(names)}"
    )
    print(f"open files before {files}, after {len(os.listdir('/proc/self/fd'))}; processes left: {len(children())}")
    for problem in problems:
        print(problem)
    if children():
        problems.append("child processes are left")
    return 1 if problems else 0


def ended_as_killed(statuses: list[int], killed_rank: int, output: str) -> bool:
    """Whether the rank died by the signal and every other rank failed because it has died."""
    return statuses[killed_rank] == -signal.SIGKILL and 0 not in statuses and "has died" in output


def children() -> list[str]:
    """Ids of the child processes that still exist."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


if __name__ == "__main__":
    sys.exit(main())
