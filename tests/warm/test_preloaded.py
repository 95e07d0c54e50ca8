"""The fork server that has imported Paddle and PaddleNLP is safe to fork; its workers compute what a cold process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from xpulab import warm

pytestmark = pytest.mark.integration

ENTRIES = Path(__file__).parent / "preloaded_entries.py"


@pytest.fixture(scope="module")
def fork_server():
    """The fork server as it is used, started where the environment would have it load a plug-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUSTOM_DEVICE_ROOT", "/nowhere")
        patch.setenv("FLAGS_check_nan_inf", "1")
        patch.delenv("OMP_NUM_THREADS", raising=False)
        running = warm.ForkServer()
    with running:
        yield running


@pytest.fixture
def warm_run(start):
    """What an entry prints in a worker, as JSON; options as those of start."""

    def run(entry, payload=b"0", **options):
        status, printed, complaint = start(f"preloaded_entries:{entry}", payload, **options).ended()
        assert status == 0, complaint
        return json.loads(printed)

    return run


def cold_run(entry, **environment):
    """What an entry prints in a new process, as JSON."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment}
    command = [sys.executable, str(ENTRIES), entry, "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_runs_in_one_thread_and_shares_no_memory(fork_server, warm_run, tmp_path):
    seen = warm_run("describe", cwd=tmp_path, OMP_NUM_THREADS="1")
    assert psutil.Process(fork_server.pid).num_threads() == 1
    assert (seen["threads"], seen["shared memory"]) == (1, [])


def test_no_file_that_an_import_opened_is_open_in_a_worker_or_made_for_it(warm_run, tmp_path):
    seen = warm_run("describe", cwd=tmp_path)
    assert (seen["files"], seen["folder"]) == ([0, 1, 2], [])


def test_a_worker_trains_to_the_bits_of_a_cold_process(warm_run):
    cold = cold_run("train", OMP_NUM_THREADS="1")
    assert cold["losses"][0] != cold["losses"][-1]
    assert warm_run("train", OMP_NUM_THREADS="1") == cold
    assert warm_run("train", b"1", OMP_NUM_THREADS="1")["weights"] != cold["weights"]


def test_names_of_layers_start_where_a_cold_process_starts(warm_run):
    assert warm_run("describe")["next name"] == "linear_0.w_0"


def test_flags_are_those_of_the_worker_and_not_of_the_fork_servers_starter(warm_run):
    assert warm_run("describe")["flags"] == {"FLAGS_use_stride_kernel": True, "FLAGS_check_nan_inf": False}
    own = {"FLAGS_use_stride_kernel": "0", "FLAGS_check_nan_inf": "true", "FLAGS_no_such": "1"}
    assert warm_run("describe", **own)["flags"] == {"FLAGS_use_stride_kernel": False, "FLAGS_check_nan_inf": True}


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_threads_is_the_workers(threads, warm_run):
    assert set(warm_run("describe", OMP_NUM_THREADS=threads)["pools"].values()) == {int(threads)}
