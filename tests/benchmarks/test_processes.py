"""A command is measured with all processes that it starts, and none of them is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from xpulab import files

pytestmark = pytest.mark.integration

COMPUTE = "import time\nwhile time.process_time() < 0.3: pass"


@pytest.fixture
def measured(tmp_path):
    """measured(command, timeout): what was measured."""
    environment = {**os.environ, "PYTHONPATH": str(files.ROOT / "tools" / "benchmarks")}
    script = str(Path(__file__).with_name("measures.py"))

    def measure(*command, timeout=60):
        done = subprocess.run(
            [sys.executable, script, str(timeout), *command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        return json.loads(done.stdout)

    return measure


def test_output_and_exit_code_are_kept(measured):
    found = measured("sh", "-c", "echo shown; echo too >&2; exit 3")
    assert (found["exit_code"], found["output"], found["left_behind"]) == (3, "shown\ntoo\n", 0)


def test_the_processor_time_of_an_orphan_counts(measured, tmp_path):
    (tmp_path / "compute.py").write_text(COMPUTE)
    found = measured("sh", "-c", f"{sys.executable} compute.py &")
    assert found["processor_seconds"] >= 0.3
    assert found["left_behind"] == 0


def test_what_runs_on_at_the_timeout_is_killed_with_its_children(measured):
    found = measured("sh", "-c", "sleep 1000 & echo $!; sleep 1000", timeout=1)
    assert found["exit_code"] is None
    assert not psutil.pid_exists(int(found["output"]))
