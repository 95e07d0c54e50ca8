"""In place of xpulab.ranks: call a function on several ranks, a process each, with the variables of Paddle's launcher."""

import faulthandler
import functools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from xpulab.ranks.environment import HOST, held_ports
from xpulab.ranks.rendezvous import prepare

GRACE = 5.0
ABORT_SECONDS = 10.0  # for writing where it is; a busy machine takes a while
START = "import pickle, sys; job = pickle.load(open(sys.argv[1], 'rb')); pickle.loads(job)()"


class RanksFailed(RuntimeError):
    """Not every rank has returned; reports: one for each rank, with reason, outcome and detail."""

    def __init__(self, reports):
        super().__init__("; ".join(f"rank {each.rank} {each.outcome}: {each.reason}" for each in reports if each.reason))
        self.reports = reports
        self.root_cause = next((each.rank for each in reports if each.reason), None)


class Results(list):
    """What each rank returned. printed: what each wrote."""

    printed = ()


def step(text):
    """What a rank notes while it works; nothing here."""


def run(function, n, *arguments, device="cpu", time_limit=120.0, launch=None):
    """What function(*arguments) returns on each of n ranks. When one fails, the others have GRACE seconds left."""
    with held_ports(n) as ports, tempfile.TemporaryDirectory() as folder:
        endpoints, folder = [f"{HOST}:{port}" for port in ports], Path(folder)
        answers = [folder / f"answer{rank}" for rank in range(n)]
        jobs = [functools.partial(work, function, arguments, device, answers, rank) for rank in range(n)]
        ranks = [start(job, of_rank(rank, endpoints, device), folder / f"printed{rank}") for rank, job in enumerate(jobs)]
        codes = end(ranks, time_limit)
        reports = [
            report(rank, code, (folder / f"printed{rank}").read_text(errors="replace")) for rank, code in enumerate(codes)
        ]
        if any(codes):
            raise RanksFailed(reports)
        results = Results(pickle.loads((folder / f"answer{rank}").read_bytes()) for rank in range(n))
        results.printed = [each.printed for each in reports]
        return results


def end(ranks, time_limit):
    """Wait for the ranks, kill those that are left, which then print where they are, and return their exit codes."""
    until = time.monotonic() + time_limit
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < until:
        if any(rank.poll() for rank in ranks):
            until = min(until, time.monotonic() + GRACE)
        time.sleep(0.02)
    left = [rank for rank in ranks if rank.poll() is None]
    for rank in left:
        rank.send_signal(signal.SIGABRT)
    until = time.monotonic() + ABORT_SECONDS
    while any(rank.poll() is None for rank in left) and time.monotonic() < until:
        time.sleep(0.02)
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()
    return [rank.poll() for rank in ranks]


def work(function, arguments, device, answers, rank):
    """In a rank: call the function, write what it returns, and stay until all have, since rank 0 serves the others."""
    import cloudpickle
    import paddle

    faulthandler.disable()  # which takes Paddle's handler away
    faulthandler.enable(sys.stderr)  # writes where this rank is when `end` ends it
    prepare()
    paddle.set_device("cpu" if device == "cpu" else f"{device}:{rank}")
    try:
        answers[rank].write_bytes(cloudpickle.dumps(function(*arguments)))
    except BaseException:
        answers[rank].with_suffix(".failed").touch()
        raise
    until = time.monotonic() + 20
    while time.monotonic() < until and not all(each.exists() for each in answers):
        if any(each.with_suffix(".failed").exists() for each in answers):
            break
        time.sleep(0.02)


def start(job, environment, printed):
    """Start a rank in a new process: in a fork of one that has computed no card works, and a product may never return."""
    import cloudpickle

    path = printed.with_suffix(".job")
    path.write_bytes(pickle.dumps(cloudpickle.dumps(job)))
    with open(printed, "wb") as file:
        command = [sys.executable, "-c", START, str(path)]
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)


def report(rank, code, text):
    """What became of a rank."""
    last = (text.strip().splitlines() or [""])[-1]
    frames = [line.strip() for line in text.splitlines() if line.startswith("  File ")]
    reason = "" if code == 0 else "; ".join([f"killed by signal {-code}", *frames[:4]]) if code < 0 else last
    outcome = "returned" if code == 0 else "killed" if code < 0 else "raised"
    return SimpleNamespace(rank=rank, reason=reason, outcome=outcome, detail=text, printed=text, step="", at=0.0)


def of_rank(rank, endpoints, device):
    """A rank's variables, as paddle.distributed.launch gives them."""
    given = {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_RANK_IN_NODE": str(rank),
        "PADDLE_LOCAL_RANK": str(rank),
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_MASTER": endpoints[0],
        "OMP_NUM_THREADS": "1",
    }
    backend = {"PADDLE_DISTRI_BACKEND": "gloo"} if device == "cpu" else {f"FLAGS_selected_{device}s": str(rank)}
    return {**os.environ, **given, **backend}
