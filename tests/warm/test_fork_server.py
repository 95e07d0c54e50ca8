"""A fork server serves many requesters and leaves nothing behind, however it or its requesters end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from xpulab import cli, warm
from xpulab.child import START, Child
from xpulab.errors import InputError
from xpulab.ranks import forked
from xpulab.warm import kernels

pytestmark = pytest.mark.integration

STARTER = """
import os, signal, subprocess, sys
from xpulab import warm
from xpulab.child import START, Child
fork_server = warm.ForkServer(sys.argv[2].split(","))
numbers = [fork_server.pid]
if sys.argv[1] == "with a worker":
    read, write = os.pipe()
    worker = warm.fork(fork_server.address, "entries:wait", b"", environment=os.environ, cwd="/", stdout=write, stderr=2)
    numbers += [worker.pid, int(os.read(read, 100))]
print(*numbers, fork_server.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def starter(monkeypatch):
    """starter(how, preload): a process that has started a fork server; returns it, the process ids, and the folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))))

    def start(how, preload="json"):
        process = ends.enter_context(
            Child([sys.executable, "-c", STARTER, how, preload], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        *numbers, folder = process.stdout.readline().decode().split()
        return process, list(map(int, numbers)), folder

    with contextlib.ExitStack() as ends:
        yield start


@pytest.fixture
def fifo(tmp_path, monkeypatch):
    """Imports of waits_for_fifo end when this is opened for writing."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("TEST_FIFO", str(tmp_path / "fifo"))
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_only_this_user_can_reach_it(fork_server):
    assert stat.S_IMODE(os.stat(os.path.dirname(fork_server.address)).st_mode) == 0o700


@pytest.mark.parametrize("wheel", ["paddlepaddle_gpu", "paddlepaddle_xpu"])
def test_nothing_is_forked_after_an_import_of_the_wheel_of_a_card(tmp_path, monkeypatch, wheel):
    info = tmp_path / f"{wheel}-3.3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {wheel.replace('_', '-')}\nVersion: 3.3.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(forked, "_own", None)
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: started.append(command))
    for start in (warm.ForkServer, forked._own_address, lambda: kernels.run_command(["true"])):
        with pytest.raises(InputError, match=f"^{wheel.replace('_', '-')} is installed.*xpulab run --cold"):
            start()
    executed = []
    monkeypatch.setattr("os.execv", lambda path, command: executed.append(command) or sys.exit(0))
    CliRunner().invoke(cli.app, ["lab", "--no-browser"])
    assert [command[1:3] + command[-1:] for command in executed] == [[START, "jupyterlab", "--no-browser"]]
    assert started == []


def test_a_fork_waits_for_the_imports(fifo, start):
    with warm.ForkServer(("waits_for_fifo",)) as fork_server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(start, "run", b"print('waits_for_fifo' in sys.modules)", fork_server.address)
        assert not asked.done()
        fifo.write_text("")
        assert asked.result(60).ended() == (0, "True\n", "")


def test_a_fork_that_waits_too_long_is_a_timeout(fifo):
    with warm.ForkServer(("waits_for_fifo",)) as fork_server, pytest.raises(TimeoutError, match="started no worker within 0 s"):
        warm.fork(fork_server.address, "entries:wait", b"", environment={}, cwd="/", stdout=1, stderr=2, time_limit=0.01)


def test_it_imports_without_what_a_worker_may_want_otherwise(start, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    unwanted = {"FLAGS_check_nan_inf": "1", "CUSTOM_DEVICE_ROOT": "/plug-ins", "MPLBACKEND": "svg", "OMP_NUM_THREADS": "7"}
    for name, value in unwanted.items():
        monkeypatch.setenv(name, value)
    with warm.ForkServer(("remembers_environment",)) as fork_server:
        _, printed, _ = start("environment_at_import", address=fork_server.address).ended()
    seen = json.loads(printed)
    assert {name for name in unwanted if name in seen} == {"OMP_NUM_THREADS"}
    assert seen["OMP_NUM_THREADS"] == "1"
    assert seen["HOME"] == os.environ["HOME"]


def test_many_workers_leave_no_zombie_and_no_open_file(fork_server, start):
    start("run", b"pass").worker.close()
    server = psutil.Process(fork_server.pid)
    before = server.num_fds()
    for number in range(30):
        one = start("run", b"print(%d)" % number)
        assert one.ended() == (0, f"{number}\n", "")
        one.worker.close()
    psutil.wait_procs(server.children(), 60)
    assert (server.children(), server.num_fds()) == ([], before)


def test_a_requester_that_is_killed_takes_its_worker_with_it_and_no_other(fork_server, start, gone):
    other = start("wait")
    source = (
        "import os, signal\nfrom xpulab import warm\nread, write = os.pipe()\n"
        f"worker = warm.fork({fork_server.address!r}, 'entries:wait', b'',"
        " environment=os.environ, cwd='/', stdout=write, stderr=2)\n"
        "print(worker.pid, int(os.read(read, 100)), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    dead = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=100)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert all(gone(int(number)) for number in dead.stdout.split())
    assert other.worker.poll() is None


def test_closing_it_ends_all_workers_and_removes_its_folder(start, gone):
    fork_server = warm.ForkServer(("json",))
    waiting = [start("wait", address=fork_server.address) for _ in range(2)]
    own = [int(one.stdout.readline()) for one in waiting]
    fork_server.close()
    fork_server.close()
    assert [one.worker.wait(60) for one in waiting] == [-signal.SIGKILL] * 2
    assert all(map(gone, own))
    assert not os.path.exists(fork_server.folder)
    with pytest.raises(warm.ForkServerGone):
        start("wait", address=fork_server.address)


def test_closing_it_or_killing_its_starter_while_it_imports_ends_it(fifo, starter, gone):
    with warm.ForkServer(("waits_for_fifo",)) as fork_server:
        pass
    assert gone(fork_server.pid)
    assert not os.path.exists(fork_server.folder)
    process, [server], _ = starter("alone", "waits_for_fifo")
    process.send_signal(signal.SIGKILL)  # to it alone
    assert gone(server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_it_is_killed_its_workers_die_with_their_children_and_the_requester_gets_the_status(number, start, gone):
    with warm.ForkServer(("json",)) as fork_server:
        waiting = start("wait", address=fork_server.address)
        own = int(waiting.stdout.readline())
        os.kill(fork_server.pid, number)
        assert waiting.worker.wait(60) == -signal.SIGKILL
        assert gone(waiting.worker.pid)
        assert gone(own)


@pytest.mark.parametrize("end", ["killed", "over"])
def test_when_its_starter_ends_nothing_is_left(end, starter, gone):
    process, numbers, folder = starter("with a worker")
    if end == "killed":
        process.send_signal(signal.SIGKILL)  # to it alone
    else:
        process.stdin.close()
    assert len(numbers) == 3
    assert all(map(gone, numbers))
    assert not os.path.exists(folder)
