"""In place of xpulab.ranks: call a function on several ranks, a process each, with the variables of Paddle's launcher."""

import functools
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

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
    """What function(*arguments) returns on each of n ranks.

    Gloo's groups share the keys of their store: now and then a rank reads an address of an earlier group, and never connects
    (Paddle 3.3.1, process_group_gloo.cc, connectFullMesh). So ranks that end with an error of gloo are started again, twice.
    """
    for left in (2, 1, 0):
        try:
            return run_once(function, n, *arguments, device=device, time_limit=time_limit)
        except RanksFailed as error:
            if not left or "third_party/gloo" not in str(error):
                raise


def run_once(function, n, *arguments, device, time_limit):
    """What function(*arguments) returns on each of n ranks, which are started once."""
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(n)]
    is_main = threading.current_thread() is threading.main_thread()  # in a copy of another thread Paddle has no device
    start = forked if device == "cpu" and is_main else started_anew
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        answers = [folder / f"answer{rank}" for rank in range(n)]
        jobs = [functools.partial(work, function, arguments, device, answers, rank) for rank in range(n)]
        ends = [start(job, of_rank(rank, endpoints, device), folder / f"printed{rank}") for rank, job in enumerate(jobs)]
        codes = [end(time_limit) for end in ends]
        reports = [
            report(rank, code, (folder / f"printed{rank}").read_text(errors="replace")) for rank, code in enumerate(codes)
        ]
        if any(codes):
            raise RanksFailed(reports)
        results = Results(pickle.loads((folder / f"answer{rank}").read_bytes()) for rank in range(n))
        results.printed = [each.printed for each in reports]
        return results


def work(function, arguments, device, answers, rank):
    """In a rank: call the function, write what it returns, and stay until all have, since rank 0 serves the others."""
    import cloudpickle
    import paddle

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


def forked(job, environment, printed):
    """Start a rank as a copy of this process; returns a function that waits for its exit code."""

    def child():
        sys.stdout = sys.stderr = open(printed, "w", buffering=1)  # noqa: SIM115 open until the process ends
        os.dup2(sys.stdout.fileno(), 1)
        os.dup2(sys.stdout.fileno(), 2)
        os.environ.update(environment)
        job()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()

    def end(time_limit):
        process.join(time_limit)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode

    return end


def started_anew(job, environment, printed):
    """Start a rank in a new process: a card cannot be used after a fork."""
    import cloudpickle

    path = printed.with_suffix(".job")
    path.write_bytes(pickle.dumps(cloudpickle.dumps(job)))
    with open(printed, "wb") as file:
        command = [sys.executable, "-c", START, str(path)]
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)

    def end(time_limit):
        try:
            return process.wait(time_limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    return end


def report(rank, code, text):
    """What became of a rank."""
    last = (text.strip().splitlines() or [""])[-1]
    reason = "" if code == 0 else f"killed by signal {-code}" if code < 0 else last
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


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
