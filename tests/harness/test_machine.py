"""What a machine, or a container's share of it, has left is read from Linux; what cannot be read is unknown."""

from __future__ import annotations

import os

import pytest

from xpulab.harness import machine
from xpulab.harness.machine import Machine, Reading, usable_cores

TICKS = os.sysconf("SC_CLK_TCK")


class Files:
    """Folders in place of /proc and /sys/fs/cgroup, and a clock that stands."""

    def __init__(self, folder):
        self.proc, self.cgroup, self.now = folder / "proc", folder / "cgroup", 0.0
        self.proc.mkdir()
        self.machine = Machine(lambda: self.now, self.proc, self.cgroup)

    def put(self, name, text):
        path = self.cgroup / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def spend(self, *busy, idle=0.0):
        """/proc/stat once each core has computed so many seconds in all."""
        lines = [f"cpu{core} {round(each * TICKS)} 0 0 {round(idle * TICKS)} 7 0 0 0 0 0" for core, each in enumerate(busy)]
        (self.proc / "stat").write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "ctxt 12"]) + "\n")

    def look(self, now, *busy, **idle):
        self.now = now
        self.spend(*busy, **idle)
        return self.machine.look()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: {0, 1})
    return Files(tmp_path)


def test_nothing_readable_is_all_unknown(files):
    assert files.machine.look() == Reading(cores=2, busy=None, available=None)


@pytest.mark.parametrize("text", ["", "cpu0 a b c\n", "cpu0\ncpu1 1\n", "\0"])
def test_a_damaged_file_is_unknown(files, text):
    for name in ("stat", "meminfo"):
        (files.proc / name).write_text(text)
    files.machine.look()
    files.now = 1.0
    assert files.machine.look().available is None


def test_busy_cores_are_the_mean_between_two_looks(files):
    files.look(0.0, 10, 20)
    assert files.look(1.0, 10.5, 21, idle=0.5).busy == pytest.approx(1.5)


def test_after_the_window_only_the_last_second_or_so_counts(files):
    files.look(0.0, 0, 0)
    files.look(10.0, 10, 10)
    assert files.look(12.0, 10, 10).busy == 0.0


def test_the_first_moment_says_nothing(files):
    assert files.look(0.0, 1, 1).busy is None
    assert files.look(0.2, 1.2, 1).busy is None


def test_what_is_forgotten_does_not_count(files):
    files.look(0.0, 0, 0)
    files.machine.forget()
    assert files.look(1.0, 1, 1).busy is None
    assert files.look(2.0, 1, 1).busy == 0.0


def test_only_the_cores_that_this_process_may_use_count(files):
    files.look(0.0, 0, 0, 0)
    assert files.look(1.0, 0, 0, 1).busy == 0.0


def test_available_memory_is_that_of_the_machine(files):
    (files.proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert files.machine.look().available == 2 << 20


@pytest.mark.parametrize(
    "group",
    [
        {"memory.max": "5000\n", "memory.current": "4000\n", "memory.stat": "anon 1\ninactive_file 500\n"},
        {
            "memory/memory.limit_in_bytes": "5000",
            "memory/memory.usage_in_bytes": "4000",
            "memory/memory.stat": "cache 9\ntotal_inactive_file 500",
        },
    ],
    ids=["v2", "v1"],
)
def test_a_container_has_what_its_limit_leaves_without_cached_files(files, group):
    (files.proc / "meminfo").write_text("MemAvailable: 2048 kB\n")
    for name, text in group.items():
        files.put(name, text)
    assert files.machine.look().available == 1500


def test_a_container_without_a_limit_has_the_memory_of_the_machine(files):
    (files.proc / "meminfo").write_text("MemAvailable: 2048 kB\n")
    files.put("memory.max", "max\n")
    files.put("memory.current", "4000\n")
    assert files.machine.look().available == 2 << 20


@pytest.mark.parametrize(
    ("group", "cores"),
    [
        ({}, 2),
        ({"cpu.max": "max 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "800000 100000\n"}, 2),
        ({"cpu.max": "nonsense"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_the_quota_of_a_container_limits_its_cores(files, group, cores):
    for name, text in group.items():
        files.put(name, text)
    assert usable_cores(files.cgroup) == cores
