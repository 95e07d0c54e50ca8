"""Names of shared memory that dead processes left are removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xpulab.sim import shared_memory

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
NAMESPACE = os.stat("/proc/self/ns/pid").st_ino
PID, USER = os.getpid(), os.getuid()
STARTED = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


@pytest.fixture
def put(tmp_path, monkeypatch):
    """put(boot=...): a segment of this process, but for what is given."""
    monkeypatch.setattr(shared_memory, "FOLDER", tmp_path)

    def segment(boot=BOOT, namespace=NAMESPACE, pid=PID, started=STARTED, user=USER):
        path = tmp_path / f"xpulab-sim-{user}-{boot}-{namespace}-{pid}-{started}-0"
        path.touch()
        return path

    return segment


@pytest.mark.parametrize("dead", [{"boot": "00000000"}, {"pid": 2**22 + 1}, {"started": int(STARTED) + 1}])
def test_a_segment_whose_creator_has_ended_is_removed(put, dead):
    path = put(**dead)
    shared_memory.remove_abandoned()
    assert not path.exists()


@pytest.mark.parametrize("living", [{}, {"namespace": 1, "pid": 2**22 + 1}, {"user": os.getuid() + 1, "boot": "00000000"}])
def test_a_segment_that_may_be_in_use_stays(put, living):
    path = put(**living)
    shared_memory.remove_abandoned()
    assert path.exists()
