"""The Slurm that the tests use ends with them, however they end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xpulab.files import ROOT

pytestmark = pytest.mark.cluster


def processes_of(folder):
    """The names of the processes that have the folder in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append((process / "comm").read_text().strip())
    return sorted(found)


def test_a_pytest_that_is_killed_leaves_no_daemon_no_job_and_no_folder(cluster):
    """The fixture of this test says whether Slurm is here; the killed pytest has a cluster of its own."""
    held = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name("held_cluster.py"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with subprocess.Popen(held, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        try:
            shown = next((line for line in tests.stdout if line.startswith("held in ")), "")
            assert shown, "no cluster was held"
            folder = Path(shown.removeprefix("held in ").strip())
            before = processes_of(folder)
        finally:
            tests.kill()
    assert {"munged", "slurmctld", "slurmd", "slurmstepd", "sleep"} <= set(before), before
    until = time.monotonic() + 60
    while (after := processes_of(folder)) or folder.exists():
        assert time.monotonic() < until, f"{after} and {folder} are still there"
        time.sleep(0.2)
