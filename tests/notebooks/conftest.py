"""Running the real notebooks through the real command line, clean or with a fault in their process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECONDS = 1100
"""After this a run is given up: several times what it takes on two busy cores."""


class Outcome:
    """What `xpulab run` left: its exit code, what it printed, and result.json."""

    def __init__(self, exit_code: int, printed: str, result: dict[str, Any]) -> None:
        self.exit_code, self.printed, self.result = exit_code, printed, result

    def notebook(self, name: str) -> dict[str, Any]:
        """One notebook's part of result.json."""
        return next(notebook for notebook in self.result["notebooks"] if notebook["name"] == name)

    def red(self) -> set[str]:
        """The names of all checks that are failed, broken or missing."""
        return {
            check["name"]
            for notebook in self.result["notebooks"]
            for check in notebook["checks"]
            if check["outcome"] in ("failed", "broken", "missing")
        }


@pytest.fixture(scope="session")
def run_notebooks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """A function that runs notebooks by name, on two cards where there are any.

    fault: Python that their process executes before the first cell. sim_faults: of simulated cards.
    """

    def run(*notebooks: str, fault: str = "", device: str = "cpu", sim_faults: str = "") -> Outcome:
        folder = tmp_path_factory.mktemp("run")
        startup = folder / "ipython" / "profile_default" / "startup"
        startup.mkdir(parents=True)
        inside_a_function = f"def fault():\n    pass\n{textwrap.indent(fault, '    ')}\nfault()\ndel fault\n"
        (startup / "fault.py").write_text(inside_a_function, encoding="utf-8")  # its names stay out of the notebook's
        command = [sys.executable, "-m", "xpulab", "run", *notebooks, "--device", device, "--cards", "2"]
        command += ["--out", str(folder / "out")]
        environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "OMP_NUM_THREADS": "1"}
        environment["XPULAB_SIM_FAULTS"] = sim_faults
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
        report = Path(folder / "out" / "result.json")
        assert report.exists(), done.stdout + done.stderr
        return Outcome(done.returncode, done.stdout, json.loads(report.read_text(encoding="utf-8")))

    return run
