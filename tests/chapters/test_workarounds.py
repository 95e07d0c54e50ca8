"""Each workaround of xpulab.chapters.shared.workarounds: the defect is there without it, and not there with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from xpulab import warm
from xpulab.chapters.shared.workarounds import multiply_fast_on_amd

pytestmark = pytest.mark.integration

SCRIPTS = Path(__file__).parent / "scripts"
SECONDS = 200


@dataclass(frozen=True)
class Done:
    returncode: int | None
    stdout: str
    stderr: str


def run_cold(script, *workarounds):
    """Run the script in a new process with these workarounds: for what an import prints."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), *workarounds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment())
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def run(fork_server):
    """Runs a script with these workarounds in a worker of the fork server, which has imported Paddle and PaddleNLP."""

    def run_warm(script, *workarounds):
        payload = json.dumps([str(SCRIPTS / f"{script}.py"), *workarounds]).encode()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            streams = {"stdout": out.fileno(), "stderr": err.fileno()}
            place = {"environment": environment(), "cwd": SCRIPTS, **streams}
            with warm.fork(fork_server.address, "run_script:run", payload, **place) as worker:
                status = worker.wait(SECONDS)
            for stream in (out, err):
                stream.seek(0)
            return Done(status, out.read(), err.read())

    return run_warm


def environment():
    path = os.pathsep.join(filter(None, (str(SCRIPTS.parents[1]), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def last_line(done):
    """The last line of the output of a script that succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_auto_trainer_cannot_be_imported_without_the_workaround(run):
    assert "No module named 'paddle.distributed.checkpoint'" in run("import_auto_trainer").stderr


def test_auto_trainer_can_be_imported_with_the_workaround(run):
    done = run("import_auto_trainer", "restore_distributed_checkpoint")
    assert done.returncode == 0, done.stderr


def test_imports_print_warnings_only_without_the_workaround():
    assert "Warning" in run_cold("import_trainer").stderr
    assert run_cold("import_trainer", "silence_import_warnings").stderr == ""


@pytest.mark.parametrize(
    ("described", "variable"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t: sse2 fma avx2\n", "5"),
        ("vendor_id\t: HygonGenuine\nflags\t: sse2 fma avx2\n", "5"),
        ("vendor_id\t: AuthenticAMD\nflags\t: sse2\n", None),
        ("vendor_id\t: GenuineIntel\nflags\t: sse2 fma avx2\n", None),
        ("CPU implementer\t: 0x41\n", None),
        (None, None),
    ],
)
def test_the_variable_for_fast_products_is_set_on_amd_and_hygon_only(tmp_path, monkeypatch, described, variable):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "")  # so that monkeypatch restores what there was
    monkeypatch.delenv("MKL_DEBUG_CPU_TYPE")
    processors = tmp_path / "cpuinfo"
    if described is not None:
        processors.write_text(described)
    multiply_fast_on_amd(str(processors))
    assert os.environ.get("MKL_DEBUG_CPU_TYPE") == variable


def test_a_value_for_fast_products_that_the_user_has_set_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "4")
    processors = tmp_path / "cpuinfo"
    processors.write_text("vendor_id : AuthenticAMD\nflags : fma avx2\n")
    multiply_fast_on_amd(str(processors))
    assert os.environ["MKL_DEBUG_CPU_TYPE"] == "4"


def test_the_trainer_has_no_log_history_and_the_callback_has(run):
    assert last_line(run("log_history")) == "0 in the trainer, 3 in the callback"


def test_dpo_trains_in_one_process_only_with_the_workaround(run):
    assert "'Fleet' object has no attribute '_user_defined_strategy'" in run("train_dpo").stderr
    assert last_line(run("train_dpo", "unwrap_single_process_models")) == "trained and evaluated"


def test_two_ranks_of_a_cpu_load_a_checkpoint_only_with_the_workaround(run):
    assert "No available device found" in run("load_on_two_ranks").stderr
    done = run("load_on_two_ranks", "load_checkpoints_on_cpu")
    assert "[True, True]" in done.stdout.splitlines(), done.stderr


def test_loading_a_checkpoint_writes_a_log_only_without_the_workaround(run):
    without, with_it = run("load_alone"), run("load_alone", "silence_checkpoint_log")
    assert "INFO" in without.stdout + without.stderr
    assert with_it.stdout + with_it.stderr == ""


@pytest.mark.parametrize(
    ("version", "workarounds", "lines"),
    [
        ("3.3.0", [], ["not replaced", "[1.0, 2.0, 0.0]"]),
        ("3.3.0", ["read_each_checkpoint_anew"], ["replaced", "[1.0, 2.0, 3.0]"]),
        ("3.3.1", ["read_each_checkpoint_anew"], ["not replaced", "[1.0, 2.0, 0.0]"]),
    ],
)
def test_the_next_checkpoint_is_read_with_its_own_metadata_only_with_the_workaround(run, version, workarounds, lines):
    done = run("load_two_checkpoints", version, *workarounds)
    assert done.stdout.splitlines() == lines, done.stderr
