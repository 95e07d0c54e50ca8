"""A whole run of the committed notebooks on each device: one that is there, or one for all tests that look at the result."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from xpulab.harness.plan import make_plans

RUNS = "XPULAB_TEST_RUNS"
"""The variable with the folders of whole runs, separated by ":", whose results are looked at instead of running again."""
WITHOUT_MODELS = {"XPULAB_MODELS": os.devnull}
"""Chapter 01 uses its stand-in, whether or not this machine has a prepared model."""
SECONDS = 1100
"""After this a run is given up: several times what it takes on two busy cores."""


@cache
def of_quick() -> set[str]:
    """The names of the checks of level quick."""
    return {check.name for plan in make_plans([], "quick") for check in plan.checks}


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
