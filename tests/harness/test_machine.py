"""What a machine, or a container's share of it, has left is read from Linux; what cannot be read is unknown."""

from __future__ import annotations

import math
import os

import pytest

from xpulab.harness.machine import Machine, Reading

TICKS = os.sysconf("SC_CLK_TCK")


class Files:
    """A folder in place of /, and a clock that stands."""

    def __init__(self, folder):
        self.root, self.proc, self.now = folder, folder / "proc", 0.0
        self.proc.mkdir()
        self.machine = Machine(lambda: self.now, folder)

    def spend(self, *busy):
        """/proc/stat once each core has computed so many seconds in all."""
        lines = [f"cpu{core} {round(each * TICKS)} 0 0 0 7 0 0 0 0 0" for core, each in enumerate(busy)]
        (self.proc / "stat").write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "ctxt 12"]) + "\n")

    def look(self, now, *busy):
        self.now = now
        self.spend(*busy)
        return self.machine.look()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    return Files(tmp_path)


def test_nothing_readable_is_all_unknown(files):
    assert files.machine.look() == Reading(cores=2, busy=None, available=math.inf)


@pytest.mark.parametrize("text", ["", "cpu0 a b c\n", "cpu0\ncpu1 1\n", "\0"])
def test_a_damaged_file_is_unknown(files, text):
    for name in ("stat", "meminfo"):
        (files.proc / name).write_text(text)
    files.machine.look()
    files.now = 1.0
    assert files.machine.look().available == math.inf


@pytest.mark.parametrize(
    ("looks", "busy"),
    [
        ([(0.0, 10, 20), (1.0, 10.5, 21)], 1.5),  # the mean between two looks
        ([(0.0, 0, 0), (10.0, 10, 10), (12.0, 10, 10)], 0.0),  # only the last second or so counts
        ([(0.0, 1, 1)], None),
        ([(0.0, 1, 1), (0.2, 1.2, 1)], None),  # too early
        ([(0.0, 0, 0, 0), (1.0, 0, 0, 1)], 0.0),  # a core that this process may not use
    ],
)
def test_busy_cores(files, looks, busy):
    assert [files.look(*each) for each in looks][-1].busy == pytest.approx(busy)


def test_what_is_forgotten_does_not_count(files):
    files.look(0.0, 0, 0)
    files.machine.forget()
    assert (files.look(1.0, 1, 1).busy, files.look(2.0, 1, 1).busy) == (None, 0.0)


def test_cores_and_memory_are_those_that_this_process_may_use(files):
    group = files.root / "sys/fs/cgroup"
    for path, text in {
        files.proc / "self/cgroup": "0::/",
        files.proc / "meminfo": "MemAvailable: 2048 kB\n",
        group / "cpu.max": "150000 100000",
        group / "memory.max": "5000",
        group / "memory.current": "4000",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert files.machine.look() == Reading(cores=1.5, busy=None, available=1000)
