"""A parent serves many, forgets nobody, and leaves nothing behind, however it or those who use it end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from xpulab import warm

STARTER = """
import os, signal, subprocess, sys
from xpulab import warm
parent = warm.ForkServer(sys.argv[2].split(","))
numbers = [parent.pid]
if sys.argv[1] == "with a child":
    read, write = os.pipe()
    child = warm.fork(parent.address, "entries:wait", b"", environment=os.environ, cwd="/", stdout=write, stderr=2)
    numbers += [child.pid, int(os.read(read, 100))]
elif sys.argv[1] == "with a copy" and not os.fork():
    os.close(1)
    signal.pause()
print(*numbers, parent.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def starter(monkeypatch):
    """starter(how, preload): a process that has started a parent; returns it, the numbers it said, and the folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))))
    started = []

    def start(how, preload="json"):
        process = subprocess.Popen(
            [sys.executable, "-c", STARTER, how, preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        *numbers, folder = process.stdout.readline().split()
        return process, list(map(int, numbers)), folder

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def fifo(tmp_path, monkeypatch):
    """Imports of waits_for_fifo end when this is opened for writing."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("TEST_FIFO", str(tmp_path / "fifo"))
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_only_this_user_can_reach_it(parent):
    assert stat.S_IMODE(os.stat(os.path.dirname(parent.address)).st_mode) == 0o700


def test_a_fork_waits_for_the_imports(fifo, start):
    with warm.ForkServer(("waits_for_fifo",)) as parent, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(start, "run", b"print('waits_for_fifo' in sys.modules)", parent.address)
        assert not asked.done()
        fifo.write_text("")
        assert asked.result(60).ended() == (0, "True\n", "")


def test_a_fork_that_waits_too_long_says_so(fifo):
    with warm.ForkServer(("waits_for_fifo",)) as parent, pytest.raises(TimeoutError, match="started no child within 0 s"):
        warm.fork(parent.address, "entries:wait", b"", environment={}, cwd="/", stdout=1, stderr=2, time_limit=0.01)


def test_where_nobody_answers_nobody_is_found(tmp_path):
    with pytest.raises(warm.ForkServerGone, match=str(tmp_path)):
        warm.fork(str(tmp_path / "socket"), "entries:wait", b"", environment={}, cwd="/", stdout=1, stderr=2)


def test_an_import_that_fails_is_told_to_whoever_forks(start):
    with warm.ForkServer(("json", "no_such_module")) as parent, pytest.raises(warm.ForkServerGone, match="'no_such_module'"):
        start("wait", address=parent.address)


def test_it_imports_without_what_a_child_may_want_otherwise(start, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    unwanted = {"FLAGS_check_nan_inf": "1", "CUSTOM_DEVICE_ROOT": "/plug-ins", "MPLBACKEND": "svg", "OMP_NUM_THREADS": "7"}
    for name, value in unwanted.items():
        monkeypatch.setenv(name, value)
    with warm.ForkServer(("remembers_environment",)) as parent:
        _, said, _ = start("environment_at_import", address=parent.address).ended()
    seen = json.loads(said)
    assert {name for name in unwanted if name in seen} == {"OMP_NUM_THREADS"}
    assert seen["OMP_NUM_THREADS"] == "1"
    assert seen["HOME"] == os.environ["HOME"]


def test_it_imports_nothing_from_the_folder_it_was_started_in(tmp_path, monkeypatch, start):
    (tmp_path / "colorsys.py").write_text("raise ImportError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    with warm.ForkServer(("colorsys",)) as parent:
        assert start("run", b"pass", parent.address).ended() == (0, "", "")


def test_a_long_folder_for_temporary_files_is_no_obstacle(tmp_path, monkeypatch, start):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with warm.ForkServer(("json",)) as parent:
        assert start("run", b"print(1)", parent.address).ended() == (0, "1\n", "")


def test_many_children_leave_no_zombie_and_no_open_file(parent, start):
    start("run", b"pass").child.close()
    server = psutil.Process(parent.pid)
    before = server.num_fds()
    for number in range(30):
        one = start("run", b"print(%d)" % number)
        assert one.ended() == (0, f"{number}\n", "")
        one.child.close()
    assert server.children() == []
    assert server.num_fds() == before


def test_children_run_at_the_same_time(start):
    meet = b"os.write(%d, b'x') if False else None\nprint('in', flush=True)\nsignal.sigwait({signal.SIGUSR1})"
    both = [start("run", b"signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n" + meet % 1) for _ in range(2)]
    assert [one.stdout.readline() for one in both] == ["in\n", "in\n"]
    for one in both:
        one.child.send_signal(signal.SIGUSR1)
        assert one.child.wait(60) == 0


def test_children_asked_for_by_many_threads_are_not_mixed_up(start):
    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda number: start("run", b"print(%d)" % number).ended(), range(24)))
    assert ended == [(0, f"{number}\n", "") for number in range(24)]


def test_children_see_nothing_of_one_another(start):
    start("run", b"import json\njson.mark = 1").ended()
    assert start("run", b"import json\nprint(hasattr(json, 'mark'))").ended()[1] == "False\n"


@pytest.mark.parametrize("packet", [b"nonsense", b"fork", b"signal 9", b"group x", b""])
def test_a_packet_that_means_nothing_is_answered_by_hanging_up(packet, parent, start):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as strange:
        strange.settimeout(60)
        strange.connect(parent.address)
        strange.send(packet)
        assert strange.recv(10) == b""
    assert start("run", b"print(1)").ended() == (0, "1\n", "")


def test_a_requester_that_is_killed_takes_its_child_with_it_and_no_other(parent, start, gone):
    other = start("wait")
    source = (
        "import os, signal\nfrom xpulab import warm\nread, write = os.pipe()\n"
        f"child = warm.fork({parent.address!r}, 'entries:wait', b'', environment=os.environ, cwd='/', stdout=write, stderr=2)\n"
        "print(child.pid, int(os.read(read, 100)), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    dead = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=100)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert all(gone(int(number)) for number in dead.stdout.split())
    assert other.child.poll() is None


def test_closing_it_ends_all_children_and_removes_its_folder(start, gone):
    parent = warm.ForkServer(("json",))
    waiting = [start("wait", address=parent.address) for _ in range(2)]
    own = [int(one.stdout.readline()) for one in waiting]
    parent.close()
    parent.close()
    assert [one.child.wait(60) for one in waiting] == [-signal.SIGKILL] * 2
    assert all(map(gone, own))
    assert not os.path.exists(parent.folder)
    with pytest.raises(warm.ForkServerGone):
        start("wait", address=parent.address)


def test_closing_it_while_it_imports_ends_it(fifo, gone):
    with warm.ForkServer(("waits_for_fifo",)) as parent:
        pass
    assert gone(parent.pid)
    assert not os.path.exists(parent.folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_it_is_killed_its_children_die_with_theirs_and_the_requester_knows(number, start, gone):
    with warm.ForkServer(("json",)) as parent:
        waiting = start("wait", address=parent.address)
        own = int(waiting.stdout.readline())
        os.kill(parent.pid, number)
        assert waiting.child.wait(60) == -signal.SIGKILL
        assert gone(waiting.child.pid)
        assert gone(own)


@pytest.mark.parametrize("end", ["killed", "over"])
def test_when_its_starter_ends_nothing_is_left(end, starter, gone):
    process, numbers, folder = starter("with a child")
    if end == "killed":
        process.kill()
    else:
        process.stdin.close()
    assert len(numbers) == 3
    assert all(map(gone, numbers))
    assert not os.path.exists(folder)


def test_a_copy_of_its_starter_does_not_keep_it_alive(starter, gone, start):
    process, [server], folder = starter("with a copy")
    start("run", b"pass", os.path.join(folder, "socket")).ended()  # it has imported, and watches its starter
    process.kill()
    assert gone(server)


def test_when_its_starter_is_killed_while_it_imports_it_ends(fifo, starter, gone):
    process, [server], folder = starter("alone", "waits_for_fifo")
    process.kill()
    assert gone(server)
    assert not os.path.exists(folder)
