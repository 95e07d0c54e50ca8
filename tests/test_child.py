"""A child process keeps to its limits, whatever it does, and leaves nothing running."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

import pytest

from xpulab import child
from xpulab.child import CANNOT_BE_KILLED, OUTPUT_LIMIT, Child


@pytest.fixture
def fifo(tmp_path):
    """A FIFO: its path, and a function that waits until the last process that holds its other end has ended."""
    path = tmp_path / "held"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def released():
        poll = select.poll()
        poll.register(reader, select.POLLHUP)
        return bool(poll.poll(5000))

    yield path, released
    os.close(reader)


def shell(script):
    return ["/bin/sh", "-c", script]


def test_output_and_errors_are_kept_apart_and_undecodable_bytes_replaced():
    ran = child.run(shell(r"printf 'P800 \377\n'; echo warning >&2; exit 3"), 10.0)
    assert (ran.status, ran.output, ran.errors, ran.is_too_long) == (3, "P800 \ufffd\n", "warning\n", False)


def test_one_that_hangs_is_killed_with_what_it_has_started(fifo):
    path, released = fifo
    ran = child.run(shell(f"exec 9> {path}; sleep 60 & echo started; exec sleep 60"), 0.3)
    assert (ran.status, ran.output, ran.killed) == (None, "started\n", "")
    assert released()


def test_one_that_ends_is_not_waited_for_longer_than_it_runs_and_leaves_nothing(fifo):
    path, released = fifo
    began = time.monotonic()
    ran = child.run(shell(f"exec 9> {path}; sleep 60 & echo done"), 30.0)
    assert (ran.status, ran.output) == (0, "done\n") and time.monotonic() - began < 10
    assert released()


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2", "sleep 60 & exec tr '\\0' x </dev/zero"])
def test_one_that_prints_without_end_is_killed_at_the_limit_of_output(script):
    ran = child.run(shell(script), 60.0)
    assert (ran.status, ran.is_too_long) == (None, True)
    assert len(ran.output) + len(ran.errors) < 2 * OUTPUT_LIMIT


def test_one_that_ignores_signals_ends_with_the_block():
    with Child(shell("trap '' INT TERM; echo ready; sleep 60"), stdout=subprocess.PIPE) as stubborn:
        assert next(filter(None, stubborn.lines())) == b"ready\n"
        stubborn.send_signal(signal.SIGINT)
        stubborn.send_signal(signal.SIGTERM)
        assert stubborn.wait(0.2) is None
    assert stubborn.wait() == -signal.SIGKILL


def test_it_ends_with_the_block_that_raises(fifo):
    path, released = fifo
    script = shell(f"exec 9> {path}; echo ready; exec sleep 60")
    with pytest.raises(KeyboardInterrupt), Child(script, stdout=subprocess.PIPE) as sleeping:
        next(filter(None, sleeping.lines()))
        raise KeyboardInterrupt
    assert released()


def test_one_that_cannot_be_killed_is_said_and_not_waited_for(monkeypatch):
    with Child(["sleep", "60"]) as stuck:
        with monkeypatch.context() as patched:  # a process that waits inside a driver cannot be had in a test
            patched.setattr(child, "signal_group", lambda pid, number: True)
            assert stuck.kill(0.1) == CANNOT_BE_KILLED
        assert stuck.kill() == ""
