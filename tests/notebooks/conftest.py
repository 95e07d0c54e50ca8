"""The committed notebooks, run once on each device for all tests that look at the result."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

WITHOUT_MODELS = {"XPULAB_MODELS": os.devnull}
"""Chapter 01 uses its stand-in, whether or not this machine has a prepared model."""

SECONDS = 1100
"""After this a run is given up: several times what it takes on two busy cores."""


@dataclass(frozen=True)
class SuiteRun:
    """What `xpulab run` left: its exit code, what it printed, and result.json."""

    exit_code: int
    printed: str
    result: dict[str, Any]

    @property
    def checks(self) -> dict[str, dict[str, Any]]:
        """All checks by name."""
        return {check["name"]: check for notebook in self.result["notebooks"] for check in notebook["checks"]}


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SuiteRun]:
    """suite(device): all notebooks at level quick on two cards, run once for all of pytest-xdist's workers."""

    def run(device: str) -> SuiteRun:
        base = tmp_path_factory.getbasetemp()
        base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
        stored = base / f"suite-{device}.json"
        with (base / f"suite-{device}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not stored.exists():
                out = base / f"suite-{device}"
                command = [sys.executable, "-m", "xpulab", "run", "--device", device, "--cards", "2", "--out", str(out)]
                environment = {**os.environ, **WITHOUT_MODELS, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, timeout=SECONDS)
                assert (out / "result.json").exists(), done.stdout + done.stderr
                result = json.loads((out / "result.json").read_text(encoding="utf-8"))
                stored.write_text(json.dumps([done.returncode, done.stdout, result]), encoding="utf-8")
        return SuiteRun(*json.loads(stored.read_text(encoding="utf-8")))

    return run
