"""A defect of Paddle 3.3.1 on every device: rank 0 aborts if another rank ends while rank 0 ends.

The store's server thread, LibUVMasterDaemon, sees that the connection is closed and calls VLOG, whose lock glog's destructor
has already destroyed. The scripts in data/take_home set FLAGS_tcp_store_using_libuv to False.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xpulab import files
from xpulab.ranks.environment import before_launch, held_ports, of_rank

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parent / "scripts" / "end_slowly.py"
SECONDS = 60


def wait_until_it_exits(process: subprocess.Popen) -> None:
    """Return when the process has called getchar, its last exit handler: it then waits in read(0, ...)."""
    until = time.monotonic() + SECONDS
    while not Path(f"/proc/{process.pid}/syscall").read_text().startswith("0 0x0 "):
        assert time.monotonic() < until, "rank 0 did not reach its last exit handler"
        time.sleep(0.01)


def exit_code_of_rank_0(folder: Path, with_libuv: bool) -> int:
    with held_ports(3) as ports:
        both = []
        try:
            for rank in range(2):
                variables = of_rank(before_launch(os.environ), rank, ports, "cpu", folder)
                command = [sys.executable, str(SCRIPT), str(with_libuv)]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
                both.append(subprocess.Popen(command, env=variables, **pipes))
            assert [each.stdout.readline() for each in both] == [b"ready\n"] * 2
            wait_until_it_exits(both[0])
            both[1].stdin.close()
            assert both[1].wait(SECONDS) == 0
            if not with_libuv:  # otherwise the abort ends it
                both[0].stdin.close()
            return both[0].wait(SECONDS)
        finally:
            for each in both:
                each.kill()
                each.stdin.close()
                each.stdout.close()
                each.wait(SECONDS)


def test_rank_0_aborts_with_the_store_that_uses_libuv(tmp_path: Path):
    assert exit_code_of_rank_0(tmp_path, with_libuv=True) == -signal.SIGABRT


def test_rank_0_ends_normally_with_the_other_store(tmp_path: Path):
    assert exit_code_of_rank_0(tmp_path, with_libuv=False) == 0


@pytest.mark.parametrize("script", ["sft", "lora", "dpo", "parallel", "resume_anywhere"])
def test_every_script_for_several_ranks_uses_the_other_store(script: str):
    assert '"FLAGS_tcp_store_using_libuv": False' in (files.DATA / "take_home" / f"{script}.py").read_text()
