"""What a process may use follows from its affinity, and from its control group with all groups above it."""

from __future__ import annotations

import math
import os

import pytest

from xpulab.records.usable import available_memory, usable_cores, whole_cores

MIB = 2**20
V2 = "0::/"
V1 = "5:cpu,cpuacct:/\n4:memory:/\n0::/"


class Root:
    """A folder in place of /, which starts empty."""

    def __init__(self, path):
        self.path = path

    def put(self, files, top="sys/fs/cgroup"):
        for name, text in files.items():
            path = self.path / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    def group(self, text, mebibytes=64):
        """/proc/self/cgroup, and what the machine itself has."""
        self.put({"proc/self/cgroup": text, "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {mebibytes * 1024} kB"}, "")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    return Root(tmp_path)


@pytest.mark.parametrize("text", ["", "\0", "a b", "max", "nonsense 100000", "-5 x", "1"])
def test_a_damaged_file_limits_nothing(root, text):
    root.group(f"{text}\n{V2}")
    root.put({"cpu.max": text, "memory.max": text, "memory.stat": text})
    root.put({"proc/meminfo": text}, "")
    assert (usable_cores(root.path), available_memory(root.path)) == (8, math.inf)


@pytest.mark.parametrize(
    ("group", "files", "cores", "whole"),
    [
        (V2, {"cpu.max": "max 100000"}, 8, 8),
        (V2, {"cpu.max": "350000 100000"}, 3.5, 3),
        (V2, {"cpu.max": "50000 100000"}, 0.5, 1),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8, 8),
        (V1, {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 2.5, 2),
        ("4:memory:/", {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 8, 8),
    ],
)
def test_a_quota_limits_the_cores_in_both_versions(root, group, files, cores, whole):
    root.group(group)
    root.put(files)
    assert (usable_cores(root.path), whole_cores(root.path)) == (cores, whole)


@pytest.mark.parametrize(
    ("group", "files", "mebibytes"),
    [
        (V2, {"memory.max": 50 * MIB, "memory.current": 30 * MIB}, 20),
        (V2, {"memory.max": "max", "memory.current": 30 * MIB}, 64),
        (V2, {"memory.max": 50 * MIB, "memory.current": 60 * MIB}, 0),
        (V1, {"memory/memory.limit_in_bytes": 50 * MIB, "memory/memory.usage_in_bytes": 30 * MIB}, 20),
        (V1, {"memory/memory.limit_in_bytes": 9223372036854771712, "memory/memory.usage_in_bytes": 30 * MIB}, 64),
    ],
)
def test_a_limit_leaves_what_is_not_used_in_both_versions(root, group, files, mebibytes):
    root.group(group)
    root.put(files)
    assert available_memory(root.path) == mebibytes * MIB


@pytest.mark.parametrize(("depth", "cores"), [("", 6), ("job.slice/", 4), ("job.slice/step/", 2)])
def test_the_strictest_of_nested_groups_counts(root, depth, cores):
    root.group("0::/job.slice/step")
    root.put({"job.slice/step/cgroup.procs": "1", "cpu.max": "600000 100000", f"{depth}cpu.max": f"{cores}00000 100000"})
    root.put({f"{depth}memory.max": cores * MIB, f"{depth}memory.current": MIB})
    assert (usable_cores(root.path), available_memory(root.path)) == (cores, (cores - 1) * MIB)
