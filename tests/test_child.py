"""A child process keeps to its limits, whatever it does, and leaves nothing running."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from xpulab import child
from xpulab.child import CANNOT_BE_KILLED, OUTPUT_LIMIT, Child

IGNORES = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
HANGS = """
import faulthandler, signal, threading
faulthandler.register(signal.SIGUSR1, all_threads=False)
print("ready", flush=True)
threading.Event().wait()
"""


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


def test_input_is_closed():
    assert child.run(["/bin/cat"], 10.0).status == 0


def test_input_ends_with_the_last_bytes_also_when_nobody_reads_them():
    pipe = subprocess.PIPE
    with Child(["cat"], stdin=pipe, stdout=pipe) as reading, Child(["true"], stdin=pipe) as ended:
        reading.close_input(b"last")
        assert [chunk for _, chunk in reading.read() if chunk] == [b"last"]
        assert ended.wait(10.0) == 0
        ended.close_input(b"last")
        ended.close_input()


def test_the_signal_that_ended_it_is_its_status():
    assert child.run(shell("kill -SEGV $$"), 10.0).status == -signal.SIGSEGV


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


def test_one_that_closes_its_output_and_goes_on_is_killed_at_the_time_limit():
    assert child.run(shell("exec >&- 2>&-; exec sleep 60"), 0.3).status is None


def test_one_that_ignores_signals_ends_with_the_block():
    with Child([sys.executable, "-c", IGNORES], stdout=subprocess.PIPE) as stubborn:
        assert next(filter(None, stubborn.lines())) == b"ready\n"
        for number in (signal.SIGINT, signal.SIGTERM):
            stubborn.send_signal(number)
        assert stubborn.wait(0.2) is None
    assert stubborn.wait() == -signal.SIGKILL


def test_it_ends_with_the_block_that_raises(fifo):
    path, released = fifo
    script = shell(f"exec 9> {path}; echo ready; exec sleep 60")
    with pytest.raises(KeyboardInterrupt), Child(script, stdout=subprocess.PIPE) as sleeping:
        next(filter(None, sleeping.lines()))
        raise KeyboardInterrupt
    assert released()


def test_ctrl_c_at_the_terminal_is_not_for_the_child():
    with Child(["sleep", "60"]) as sleeping:
        assert os.getsid(sleeping.pid) == sleeping.pid != os.getsid(0)


def test_one_that_ends_in_time_keeps_its_status():
    ending = Child(shell("sleep 0.1; exit 4"))
    assert (ending.end(30.0), ending.wait()) == ("", 4)


def test_one_that_cannot_be_killed_is_said_and_not_waited_for(monkeypatch):
    with Child(["sleep", "60"]) as stuck:
        with monkeypatch.context() as patched:  # a process that waits inside a driver cannot be had in a test
            patched.setattr(child, "signal_group", lambda pid, number: True)
            assert stuck.kill(0.1) == CANNOT_BE_KILLED
        assert stuck.kill() == ""


def test_lines_come_whole_and_the_last_one_without_its_end():
    with Child(shell("printf 'a'; sleep 0.3; printf 'b\\n\\nc'"), stdout=subprocess.PIPE) as printing:
        lines = list(printing.lines())
    assert [line for line in lines if line is not None] == [b"ab\n", b"\n", b"c"] and None in lines


def test_a_line_without_end_is_divided():
    with Child(shell("exec tr '\\0' x </dev/zero"), stdout=subprocess.PIPE) as printing:
        line = next(filter(None, printing.lines()))
    assert OUTPUT_LIMIT < len(line) < 2 * OUTPUT_LIMIT


def test_one_that_hangs_shows_the_line_of_python(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(HANGS)
    command = [sys.executable, str(script)]
    with (tmp_path / "log").open("w+b") as log, Child(command, stdout=subprocess.PIPE, stderr=log) as hanging:
        next(filter(None, hanging.lines()))
        assert hanging.place(log.fileno()) == f'File "{script}", line 5 in <module>'


def test_one_that_has_no_handler_for_its_stack_shows_none(tmp_path):
    with (tmp_path / "log").open("w+b") as log, Child(["sleep", "60"], stderr=log) as hanging:
        assert hanging.place(log.fileno()) == ""


def test_a_command_that_is_not_there_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        child.run([str(tmp_path / "none")], 1.0)


def test_a_child_ends_with_a_parent_that_is_killed(fifo):
    path, released = fifo
    source = "import subprocess, sys; from xpulab.child import end_with_parent\n"
    source += f"subprocess.Popen(['sleep', '60'], stdout=open({str(path)!r}, 'w'), preexec_fn=end_with_parent)\n"
    source += "print('ready', flush=True); import time; time.sleep(60)"
    with Child([sys.executable, "-c", source], stdout=subprocess.PIPE) as parent:
        next(filter(None, parent.lines()))
        parent.send_signal(signal.SIGKILL)  # to it alone
        assert released()


def test_orphans_are_adopted():
    source = "import os, subprocess, sys; from xpulab.child import adopt_orphans; adopt_orphans()\n"
    source += "subprocess.run(['sh', '-c', 'sleep 0.2 & exit 0']); os.waitpid(-1, 0)"
    assert child.run([sys.executable, "-c", source], 30.0).status == 0
