"""Each workaround of xpulab.notebook.workarounds: the defect is there without it, and not there with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPTS = Path(__file__).parent / "scripts"
SECONDS = 200


def run(script, *workarounds):
    """Run the script in its own process with these workarounds; its return code, output and errors."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), *workarounds]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)


def last_line(done):
    """The last line of the output of a script that succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_auto_trainer_cannot_be_imported_without_the_workaround():
    assert "No module named 'paddle.distributed.checkpoint'" in run("import_auto_trainer").stderr


def test_auto_trainer_can_be_imported_with_the_workaround():
    done = run("import_auto_trainer", "restore_distributed_checkpoint")
    assert done.returncode == 0, done.stderr


def test_imports_print_warnings_only_without_the_workaround():
    assert "Warning" in run("import_trainer").stderr
    assert run("import_trainer", "silence_import_warnings").stderr == ""


def test_the_trainer_has_no_log_history_and_the_callback_has():
    assert last_line(run("log_history")) == "0 in the trainer, 3 in the callback"


@pytest.mark.parametrize(
    ("workarounds", "same_order", "same_random_numbers"),
    [
        ([], False, False),
        (["resume_data_order"], True, False),
        (["resume_data_order", "resume_random_state"], True, True),
    ],
    ids=["none", "data order", "both"],
)
def test_a_resumed_run_is_the_same_only_with_its_workarounds(workarounds, same_order, same_random_numbers):
    expected = f"same order {same_order}, same random numbers {same_random_numbers}"
    assert last_line(run("resume_training", *workarounds)) == expected


def test_dpo_trains_in_one_process_only_with_the_workaround():
    assert "'Fleet' object has no attribute '_user_defined_strategy'" in run("train_dpo").stderr
    assert last_line(run("train_dpo", "unwrap_single_process_models")) == "trained and evaluated"


def test_two_ranks_of_a_cpu_load_a_checkpoint_only_with_the_workaround():
    assert "No available device found" in run("load_on_two_ranks").stderr
    done = run("load_on_two_ranks", "load_checkpoints_on_cpu")
    assert "[True, True]" in done.stdout.splitlines(), done.stderr


def test_loading_a_checkpoint_writes_a_log_only_without_the_workaround():
    without, with_it = run("load_alone"), run("load_alone", "silence_checkpoint_log")
    assert "INFO" in without.stdout + without.stderr
    assert with_it.stdout + with_it.stderr == ""
