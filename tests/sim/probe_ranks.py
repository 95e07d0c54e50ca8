"""Two ranks, forked from this process, which has imported paddle and used no card; faults strike their collectives.

Prints for each text of faults what each rank saw: its exit code, and the sum that it got or the error.
"""

import json
import os
import signal
import socket
import sys
import time

import paddle
import paddle.distributed as dist

from xpulab import sim

TEXTS = {
    "none": "",
    "flip": "flip collective kind=all_reduce rank=1 bit=31 n=1",
    "fail": "fail collective kind=all_reduce rank=1 n=1",
    "delay": "delay collective kind=all_reduce rank=1 seconds=0.2",
    "drop": "drop collective kind=all_reduce rank=1 n=1",
    "lose": "lose collective kind=all_reduce rank=1 n=1",
    "hang": "hang collective kind=all_reduce rank=1 n=1",
}
SECONDS = 60


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def rank_main(rank, ports, text, out):
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    os.environ.update(
        PADDLE_TRAINER_ID=str(rank),
        PADDLE_TRAINERS_NUM=str(len(ports)),
        PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
        PADDLE_CURRENT_ENDPOINT=endpoints[rank],
        PADDLE_DISTRI_BACKEND="xccl",
        PADDLE_XCCL_BACKEND="sim",
        FLAGS_selected_sims=str(rank),
        XPULAB_SIM_FAULTS=text,
    )
    sim.load(len(ports))
    try:
        dist.init_parallel_env()
        value = paddle.full([4], float(rank + 1))
        dist.all_reduce(value)
        saw = value.tolist()
    except (RuntimeError, OSError, ValueError) as error:
        saw = f"{type(error).__name__}: {error}"
    counted = sim.counters(rank)
    os.write(out, json.dumps([saw, counted.faults, counted.collectives["all_reduce"]]).encode())


def run(text):
    ports, ranks = free_ports(2), []
    for rank in range(2):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                rank_main(rank, ports, text, writing)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        ranks.append((child, reading))
    deadline, answers = time.monotonic() + SECONDS, []
    for child, reading in ranks:
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        with open(reading) as opened:
            said = opened.read()
        answers.append([os.waitstatus_to_exitcode(ended[1]), json.loads(said) if said else None])
    return answers


saw = {name: run(TEXTS[name]) for name in sys.argv[1:] or TEXTS}
print(json.dumps(saw))
