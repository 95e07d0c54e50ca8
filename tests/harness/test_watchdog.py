"""The watchdog alone: whose time it counts."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from xpulab.harness.watchdog import Watchdog

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("starts", "least"), [("", 0.2), ("0.5\n0.3\n", 1.0)])
def test_the_starts_of_ranks_are_not_the_time_of_the_notebook(tmp_path: Path, starts: str, least: float):
    watchdog = Watchdog(0.2, tmp_path / "log")
    watchdog.starts = tmp_path / "starts"
    watchdog.starts.write_text(starts)
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as kernel:
        began = time.monotonic()
        watchdog.kernel_started(kernel.pid)
        kernel.wait(60)
        seconds = time.monotonic() - began
    watchdog.close()

    assert seconds >= least
    assert watchdog.reason == "the kernel was not ready after 0 s"
