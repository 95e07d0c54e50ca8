"""The file that chapter 16 gives away saves in the background and resumes, without xpulab and without the notebook."""

from __future__ import annotations

import os
import re

import pytest

from xpulab import files

pytestmark = pytest.mark.notebooks

SCRIPT = files.DATA / "take_home" / "zero_cost_saver.py"


@pytest.fixture
def losses(forked, tmp_path):
    """losses(folder, argument, ..., device="cpu"): runs the script, which saves into the folder after every fourth step.

    Returns step to loss of the steps that it made.
    """

    def run(folder, *arguments, **place):
        done = forked(SCRIPT, "--output_dir", str(folder), *arguments, cwd=tmp_path, **place)
        assert done.returncode == 0, done.stdout
        return losses_in(done.stdout)

    return run


def losses_in(printed):
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+), loss (\S+)", printed)}


def test_it_resumes_as_if_uninterrupted_from_the_newest_complete_checkpoint(losses, tmp_path, as_a_reader):
    uninterrupted = losses_in(as_a_reader(["python", SCRIPT, "--output_dir", "a"], tmp_path))
    first = losses(tmp_path / "b", "--max_steps", "9")
    newest = tmp_path / "b" / "step-8" / "state.safetensors"
    os.truncate(newest, newest.stat().st_size // 2)  # as after a kill
    resumed = losses(tmp_path / "b")

    assert list(resumed) == list(range(5, 13))
    assert {**first, **resumed} == pytest.approx(uninterrupted, abs=1e-4)
    assert uninterrupted[12] < uninterrupted[1]
    assert (tmp_path / "b" / "step-8" / "complete.json").exists()


def test_it_saves_the_state_of_a_simulated_card(losses, tmp_path):
    first = losses(tmp_path / "saved", "--device", "sim", "--max_steps", "4", device="sim")
    resumed = losses(tmp_path / "saved", "--device", "sim", "--max_steps", "6", device="sim")

    assert list(first) == [1, 2, 3, 4]
    assert list(resumed) == [5, 6]
