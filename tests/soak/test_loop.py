"""A soak goes on until its time is over or it is ended, names the round of the first change, and leaves nothing behind;
all rounds share one fork server, and one that has ended is replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from xml.etree import ElementTree

import psutil
import pytest

from xpulab import warm
from xpulab.soak import loop
from xpulab.soak.loop import Kernels, has_time

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "xpulab", "run", "--level", "soak", "--device", "cpu", "--cold", "--jobs", "1", "--out", "out"]

PRODUCT = """
import os
import pathlib
import numpy as np

rounds = pathlib.Path(os.environ["ROUNDS"])
rounds.write_text(rounds.read_text() + "." if rounds.exists() else ".")
product = np.random.default_rng(seed).standard_normal((4, 4)) @ np.ones((4, 4))
if len(rounds.read_text()) in map(int, os.environ.get("WRONG_IN", "").split()):
    product.view("uint64")[1, 2] ^= np.uint64(1)  # the lowest bit: far below every bound
check.finite("demo.product", product, control=np.full((4, 4), np.nan))
"""
RED = 'check.equal("demo.sum", len(rounds.read_text()) in map(int, os.environ.get("RED_IN", "").split()), False, control=True)'
ENDLESS = "import subprocess, time\nchild = subprocess.Popen(['sleep', '300'])\nwhile True:\n    time.sleep(0.01)"


class Started:
    """A soak in a process of its own, whose lines are read as they come."""

    def __init__(self, folder, *options, **environment):
        self.folder = folder
        given = {**os.environ, "ROUNDS": str(folder / "rounds.txt"), "PYTHONUNBUFFERED": "1", **environment}
        self.process = subprocess.Popen(
            [*COMMAND, *options], cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.written = ""

    def read_until(self, text):
        """Read lines until one has this text."""
        for line in self.process.stdout:
            self.written += line
            if text in line:
                return
        pytest.fail(f"it ended without {text!r}:\n{self.written}")

    def end(self):
        """Read the rest; returns the exit code."""
        self.written += self.process.stdout.read()
        return self.process.wait(60)

    @property
    def lines(self):
        """What soak.jsonl holds."""
        return [json.loads(line) for line in (self.folder / "out" / "soak.jsonl").read_text().splitlines()]

    @property
    def summary(self):
        """What soak.json holds."""
        return json.loads((self.folder / "out" / "soak.json").read_text())


@pytest.fixture
def start(put, tmp_path):
    """start(cells, option, ..., VARIABLE=value): starts a soak of one notebook with these cells."""
    started = []

    def begin(cells, *options, **environment):
        put("demo", *cells)
        started.append(Started(tmp_path, "demo.ipynb", "--check", "demo.*", *options, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.stdout.close()
        each.process.wait()


def four_rounds(soak):
    """Let a soak run four rounds, and end it; returns its exit code."""
    soak.read_until("round 4")
    soak.process.send_signal(signal.SIGTERM)
    return soak.end()


def test_a_bit_that_flips_in_one_round_is_named_with_the_round_although_every_check_is_green(start):
    soak = start([PRODUCT], WRONG_IN="4")
    assert four_rounds(soak) == 1
    assert [line["outcome"] for line in soak.lines[:4]] == ["passed", "passed", "passed", "failed"]
    [found] = soak.lines[3]["problems"]
    assert (found["kind"], found["check"], found["before"]["number"], found["after"]["number"]) == (
        "difference",
        "demo.product",
        1,
        4,
    )
    assert "first problem: round 4 (seed 0, " in soak.written and "demo.product: difference" in soak.written
    assert soak.summary["first_bad_round"] == 4


def test_without_the_fault_every_round_is_green_and_an_interruption_is_130(start):
    soak = start([PRODUCT])
    assert four_rounds(soak) == 130
    assert [(line["seed"], line["repeated"]) for line in soak.lines[:4]] == [(0, 0), (0, 1), (1, 0), (0, 1)]
    assert (soak.summary["outcome"], soak.summary["interrupted"], soak.summary["problems"]) == ("passed", True, [])
    assert "green: nothing was red" in soak.written


def test_a_check_that_is_red_in_one_round_is_named_with_the_round_and_its_reports_are_kept(start, tmp_path):
    soak = start([PRODUCT, RED], RED_IN="2")
    assert four_rounds(soak) == 1
    assert [line["outcome"] for line in soak.lines[:4]] == ["passed", "failed", "passed", "passed"], "it goes on"
    assert (tmp_path / "out/rounds/0002/notebooks/demo.ipynb").exists()
    case = ElementTree.parse(tmp_path / "out/junit.xml").getroot().find(".//testcase[@name='demo.sum']/failure")
    assert case.get("message") == "red in round 2"


def test_only_the_first_rounds_of_the_seeds_the_first_bad_one_and_the_last_one_are_kept(start, tmp_path):
    soak = start([PRODUCT, RED], RED_IN="4 5 6", WRONG_IN="")
    soak.read_until("round 6")
    soak.process.send_signal(signal.SIGINT)
    assert soak.end() == 1
    kept = {int(path.name) for path in (tmp_path / "out/rounds").iterdir()}
    assert {1, 3, 4} <= kept and not {2, 5} & kept


def test_hours_end_it_and_too_few_rounds_are_no_verdict(start):
    soak = start([PRODUCT], "--hours", "0.0000001", "--seed", "5", "--cards", "1")
    assert soak.end() == 2
    assert [(line["round"], line["seed"]) for line in soak.lines] == [(1, 5)]
    assert "no verdict" in soak.written and not soak.summary["interrupted"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_round_ends_it_with_a_summary_and_leaves_no_process(start, number):
    soak = start([PRODUCT, ENDLESS])
    family, until = [], time.monotonic() + 100
    while time.monotonic() < until and "sleep" not in [name_of(each) for each in family]:
        time.sleep(0.05)
        family = psutil.Process(soak.process.pid).children(recursive=True)
    soak.process.send_signal(number)
    assert soak.end() == 130
    assert [line["outcome"] for line in soak.lines] == ["interrupted"]
    assert "interrupted after" in soak.written and "Traceback" not in soak.written
    assert psutil.wait_procs(family, timeout=10)[1] == []


def test_a_kernel_that_dies_is_a_red_round_and_the_next_one_runs(start):
    dies = "import signal\nif len(rounds.read_text()) == 2:\n    os.kill(os.getpid(), signal.SIGKILL)"
    soak = start([PRODUCT, dies])
    assert four_rounds(soak) == 1
    assert [line["outcome"] for line in soak.lines[:4]] == ["passed", "failed", "passed", "passed"]
    [found] = [each for each in soak.lines[1]["problems"] if each["check"] == "the notebook"]
    assert "the kernel died in cell 4" in found["reason"]


def test_a_full_disk_ends_it_with_one_message(start, tmp_path):
    soak = start([PRODUCT])
    soak.read_until("round 1")
    lines = tmp_path / "out/soak.jsonl"
    lines.unlink()
    lines.symlink_to("/dev/full")
    assert soak.end() == 2
    assert "a report could not be written" in soak.written and "No space left" in soak.written
    assert "Traceback" not in soak.written


@pytest.mark.parametrize(
    ("hours", "elapsed", "seconds", "another"),
    [
        (1.0, 99999.0, [], True),
        (1.0, 3500.0, [100.0, 90.0, 95.0], True),
        (1.0, 3510.0, [100.0, 90.0, 95.0], False),
        (None, 1e9, [100.0], True),
    ],
)
def test_a_round_begins_only_when_one_of_median_length_ends_in_time(hours, elapsed, seconds, another):
    assert has_time(hours, elapsed, seconds) is another


def name_of(process):
    """What a process is called; "" when it is gone."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@pytest.fixture
def servers(monkeypatch):
    """The fork servers that were started, which import nothing."""
    started = []

    @contextmanager
    def environment(device, cold):
        with warm.ForkServer(preload=("json",)) as server:
            started.append(server)
            yield {warm.ADDRESS: server.address}

    monkeypatch.setattr(loop, "kernel_environment", environment)
    return started


def test_two_rounds_use_one_fork_server_which_ends_with_the_soak(servers):
    with Kernels("cpu", cold=False) as shared:
        with shared.of_round() as first, shared.of_round() as second:
            assert first is second
        assert (len(servers), shared.started) == (1, 1)
    assert not psutil.pid_exists(servers[0].pid)


def test_a_fork_server_that_was_killed_is_replaced(servers):
    with Kernels("cpu", cold=False) as shared:
        with shared.of_round():
            os.kill(servers[0].pid, signal.SIGKILL)
            psutil.wait_procs([psutil.Process(servers[0].pid)], timeout=10)
        with shared.of_round() as replaced:
            assert replaced[warm.ADDRESS] == servers[1].address
        assert shared.started == 2


def test_cold_kernels_need_no_fork_server():
    with Kernels("cpu", cold=True) as shared, shared.of_round() as environment:
        assert warm.ADDRESS not in environment
        assert shared.started == 0
