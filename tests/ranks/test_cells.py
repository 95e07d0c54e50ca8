"""In a real kernel: functions that are defined in cells, failures that name them, and the button that interrupts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from xpulab import warm

pytestmark = pytest.mark.integration

SECONDS = 200.0
"""More than the 120 s after which a run fails whose ranks do not start, so that the error names them."""

SETUP = """
import os, signal, warnings
warnings.simplefilter("ignore")
from xpulab import ranks
FACTOR = 3
"""
HELPER = """
class Pair:
    def __init__(self, left, right): self.left, self.right = left, right

def scaled(number):
    return Pair(number, number * FACTOR)
"""
RUN = """
def work(offset):
    return scaled(int(os.environ["PADDLE_TRAINER_ID"]) + offset)

print([(pair.left, pair.right, type(pair) is Pair) for pair in ranks.run(work, 2, 10)])
"""
FAIL = """
def fails():
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        return scaled(None)  # nothing to scale

ranks.run(fails, 2)
"""
HANG = """
def hangs(path):
    with open(path, "a") as pipe:
        pipe.write(f"{os.getpid()}\\n")
    signal.pause()

ranks.run(hangs, 2, PATH)
"""


@dataclass
class Answer:
    """What a cell showed: printed text, and the error's name and text."""

    printed: str = ""
    error: str = ""
    shown: str = ""


@dataclass(frozen=True)
class Kernel:
    """A kernel that runs cells, one after another."""

    manager: KernelManager
    client: BlockingKernelClient

    def run(self, cell: str) -> Answer:
        return self.answer(self.client.execute(cell))

    def answer(self, request: str) -> Answer:
        """What the cell of this request shows until it has ended."""
        answer = Answer()
        while True:
            message = self.client.get_iopub_msg(timeout=SECONDS)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "stream":
                answer.printed += content["text"]
            elif kind == "error":
                answer.error = content["ename"]
                answer.shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return answer


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, fork_server: warm.ForkServer) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(transport="ipc", ip=str(folder / "kernel"), kernel_name="python3")
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    manager.start_kernel(
        cwd=str(folder), env={**os.environ, warm.ADDRESS: fork_server.address, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    )
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=SECONDS)
        running = Kernel(manager, client)
        for cell in (SETUP, HELPER):
            assert not running.run(cell).error
        yield running
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_function_uses_what_other_cells_define(kernel: Kernel):
    assert kernel.run(RUN).printed == "[(10, 30, True), (11, 33, True)]\n"


def test_a_failure_names_the_cell_and_shows_its_line(kernel: Kernel):
    answer = kernel.run(FAIL)

    assert answer.error == "RanksFailed"
    assert answer.shown.startswith("RanksFailed: root cause: rank 1: TypeError: unsupported operand")
    assert re.search(r"Cell In\[\d+\], line 3, in fails\n    return scaled\(None\)  # nothing to scale", answer.shown)
    assert "ipykernel" not in answer.shown


def test_an_interrupted_cell_shows_where_its_ranks_were_and_the_next_one_runs(
    kernel: Kernel, pipe, all_end: Callable[[list[psutil.Process]], None]
):
    request = kernel.client.execute(HANG.replace("PATH", repr(pipe.path)))
    started = pipe.processes(2)

    kernel.manager.interrupt_kernel()
    answer = kernel.answer(request)

    all_end(started)
    assert answer.error == "RanksInterrupted"
    assert answer.shown.count(", in hangs") >= 2
    assert kernel.run(RUN).printed == "[(10, 30, True), (11, 33, True)]\n"
