"""A worker is what a process of its own would be: what it has, how it ends, and how it is signalled."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture
def described(start):
    """What a worker finds in itself."""

    def describe(**options):
        status, printed, complaint = start("describe", **options).ended()
        assert (status, complaint) == (0, "")
        return json.loads(printed)

    return describe


def test_it_has_the_environment_that_was_given_and_no_other(described, monkeypatch):
    monkeypatch.setenv("OF_THE_REQUESTER", "must not be seen")
    seen = described(GIVEN="näme")
    assert set(seen["environment"]) == {"PATH", "PYTHONPATH", "GIVEN"}
    assert seen["environment"]["GIVEN"] == "näme"
    assert "GIVEN=n" in seen["seen by a child of it"]
    assert "OF_THE_REQUESTER" not in seen["seen by a child of it"]


def test_its_folder_files_session_signals_time_zone_and_random_numbers_are_its_own(described, tmp_path):
    seen = described(payload=bytes(50_000_000), cwd=tmp_path, TMPDIR=str(tmp_path), TZ="UTC-5")
    assert (seen["cwd"], seen["temporary"], seen["hour"]) == (str(tmp_path), str(tmp_path), 5)
    assert (seen["files"], seen["stdin"], seen["payload"]) == ([0, 1, 2], "", 50_000_000)
    own, group, session, _ = seen["ids"]
    assert own == group == session
    assert seen["handled"] == [signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ]
    assert seen["blocked"] == []
    assert described()["random"] != seen["random"]


def test_its_path_is_its_pythonpath_and_the_installation(described, fork_server):
    path = described(PYTHONPATH="/a/b:/c")["path"]
    assert path[1:3] == ["/a/b", "/c"] and "" not in path
    assert not any("xpulab-warm" in entry for entry in path)
    assert any(entry.endswith("site-packages") for entry in path)


ENDS = {
    "pass": (0, ""),
    "sys.exit(3)": (3, ""),
    "sys.exit()": (0, ""),
    "sys.exit(256 + 7)": (7, ""),
    "sys.exit('the reason')": (1, "the reason"),
    "raise ValueError('oops')": (1, "ValueError: oops"),
    "raise KeyboardInterrupt": (-signal.SIGINT, "KeyboardInterrupt"),
    "os._exit(5)": (5, ""),
    "os.kill(os.getpid(), signal.SIGKILL)": (-signal.SIGKILL, ""),
    "os.kill(os.getpid(), signal.SIGSEGV)": (-signal.SIGSEGV, ""),
    "os.close(1)": (0, ""),
}


@pytest.mark.parametrize("source", ENDS)
def test_its_status_is_that_of_a_process(source, start):
    status, _, complaint = start("run", source.encode()).ended()
    assert status == ENDS[source][0]
    assert complaint.strip().splitlines()[-1:] == ([ENDS[source][1]] if ENDS[source][1] else [])


def test_it_ends_as_a_program_does(start):
    assert start("end_late").ended() == (0, "entry\nthread\nat exit\n", "")


@pytest.mark.parametrize(
    ("entry", "cwd", "named"),
    [
        ("entries:no_such", "/", "no_such"),
        ("no_such_module:run", "/", "no_such_module"),
        ("describe", "/no/x", "/no/x"),
    ],
)
def test_an_entry_or_a_folder_that_is_not_there_is_named(entry, cwd, named, start):
    status, _, complaint = start(entry, cwd=cwd).ended()
    assert status == 1
    assert named in complaint


@pytest.mark.parametrize("end", ["kill", "close"])
def test_killing_and_closing_take_its_children_too(end, start, gone):
    waiting = start("wait")
    own = int(waiting.stdout.readline())
    getattr(waiting.worker, end)()
    assert waiting.worker.wait(60) == -signal.SIGKILL
    assert gone(own)


def test_what_a_worker_leaves_behind_ends_with_it(start, gone):
    left = start("leave_a_child")
    own = int(left.stdout.readline())
    assert left.worker.wait(60) == 0
    assert gone(own)


def test_two_threads_can_wait_for_its_end(start):
    waiting = start("wait")
    waiting.stdout.readline()
    assert waiting.worker.wait(0) is None
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(waiting.worker.wait, 60) for _ in range(2)]
        waiting.worker.kill()
        assert [wait.result() for wait in waits] == [-signal.SIGKILL] * 2


def test_a_signal_that_comes_at_once_is_not_lost_and_a_closed_handle_can_be_used_again(start):
    worker = start("wait").worker
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(60) == -signal.SIGTERM
    for again in (worker.close, worker.close, worker.kill):
        again()
    assert worker.poll() == -signal.SIGTERM
