"""What tests of notebooks share: a whole run of them on each device, one that is there or one for all tests that look at it;
and the scripts that readers take home, in processes that the fork server forks after its imports."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import usual_plans
from xpulab import sim, warm
from xpulab.ranks import environment

RUNS = "XPULAB_TEST_RUNS"
"""The variable with the folders of whole runs, separated by ":", whose results are looked at instead of running again."""
WITHOUT_MODELS = {"XPULAB_MODELS": os.devnull}
"""Chapter 01 uses its stand-in, whether or not this machine has a prepared model."""
SECONDS = 1100
"""After this a run is given up: several times what it takes on two busy cores."""


@cache
def of_quick() -> set[str]:
    """The names of the checks of level quick."""
    return {check.name for plan in usual_plans("quick").values() for check in plan.checks}


@dataclass(frozen=True)
class Book:
    """result: what result.json of a whole run holds."""

    result: dict[str, Any]

    @property
    def checks(self) -> dict[str, dict[str, Any]]:
        """The checks of level quick by name, also of a run at level standard."""
        every = (check for notebook in self.result["notebooks"] for check in notebook["checks"])
        return {check["name"]: check for check in every if check["name"] in of_quick()}


def run(device: str, out: Path, *asked: str) -> Book:
    """`xpulab run` of these notebooks or checks, without any of all, at level quick on two cards."""
    command = [sys.executable, "-m", "xpulab", "run", *asked, "--device", device, "--cards", "2", "--out", str(out)]
    environment = {**os.environ, **WITHOUT_MODELS, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=out.parent, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert (out / "result.json").exists(), done.stdout + done.stderr
    return Book(json.loads((out / "result.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def book_run() -> Callable[..., Book]:
    """book_run(device, out, *asked): a run of these notebooks."""
    return run


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Book]:
    """suite(device): a run that the variable names, or one of all notebooks for all of pytest-xdist's workers."""

    def of(device: str) -> Book:
        for folder in filter(None, os.environ.get(RUNS, "").split(os.pathsep)):
            result = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
            if (result["device"], result["level"] in ("quick", "standard")) == (device, True):
                return Book(result)
        base = tmp_path_factory.getbasetemp()
        base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
        with (base / f"suite-{device}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stored = base / f"suite-{device}" / "result.json"
            return Book(json.loads(stored.read_text(encoding="utf-8"))) if stored.exists() else run(device, stored.parent)

    return of


READER_SECONDS = 200
"""For a command of a reader, on a busy machine; on an idle one it takes 3 to 20 s, most of them to import PaddleNLP."""
NOT_OF_A_READER = ("PYTHONPATH", "XPULAB", "CUSTOM_DEVICE", "PADDLE_", "FLAGS_")
"""How variables begin that a reader's shell does not have."""


def run_as_a_reader(command: Sequence[Path | str], cwd: Path, succeeds: bool = True, **variables: str) -> str:
    """What a command writes to both of its outputs, run in a folder as a reader does: without xpulab; "python" is this one."""
    bin_of_python = str(Path(sys.executable).parent)
    of_reader = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OF_A_READER)}
    of_reader = environment.before_launch(of_reader)
    of_reader |= {"PYTHONWARNINGS": "ignore", "PATH": f"{bin_of_python}:{os.environ['PATH']}"}
    place = {"cwd": cwd, "env": {**of_reader, **variables}, "timeout": READER_SECONDS}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **place)
    assert (done.returncode == 0) is succeeds, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def as_a_reader() -> Callable[..., str]:
    """as_a_reader(command, folder, succeeds=True, NAME=VALUE): what it writes."""
    return run_as_a_reader


SCRIPT_SECONDS = 120
"""For a script in forked processes, on a busy machine."""


@pytest.fixture(scope="session")
def forked(fork_server: warm.ForkServer) -> Callable[..., subprocess.CompletedProcess]:
    """forked(script, argument, ..., cwd=FOLDER, n=1, device="cpu"): the script on n ranks.

    As `python -m paddle.distributed.launch script argument ...`, or without the launcher on one rank, would run it, but after
    the imports, which take longer than what the scripts do here. Each script has another test that runs it as a reader does.
    A rank's standard output and error are in CWD/log/workerlog.RANK. Returns the highest exit status and the log of rank 0.
    """

    def run(script: Path | str, *arguments: str, cwd: Path, n: int = 1, device: str = "cpu") -> subprocess.CompletedProcess:
        base = environment.before_launch(os.environ) | {"PYTHONPATH": str(Path(__file__).parent.parent)}
        base |= sim.environment(n) if device == "sim" else {}
        payload = json.dumps([str(script), *arguments]).encode()
        logs = cwd / "log"
        logs.mkdir(exist_ok=True)
        with ExitStack() as stack:
            ports = stack.enter_context(environment.held_ports(n + 1))
            workers = []
            for rank in range(n):
                log = stack.enter_context((logs / f"workerlog.{rank}").open("wb"))
                variables = environment.of_rank(base, rank, ports, device, logs) if n > 1 else base
                place = {"environment": variables, "cwd": cwd, "stdout": log.fileno(), "stderr": log.fileno()}
                worker = warm.fork(fork_server.address, "run_script:run", payload, **place)
                workers.append(stack.enter_context(worker))
            end = time.monotonic() + SCRIPT_SECONDS
            ended = [worker.wait(max(0.0, end - time.monotonic())) for worker in workers]
        written = (logs / "workerlog.0").read_text(encoding="utf-8", errors="replace")
        assert None not in ended, f"it did not end within {SCRIPT_SECONDS} s\n{written[-3000:]}"
        return subprocess.CompletedProcess([str(script), *arguments], max(map(abs, filter(None, ended)), default=0), written)

    return run
