"""PaddleFormers' own manager and worker, driven on the host; without PaddleFormers only the refusal is seen."""

from __future__ import annotations

import importlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from xpulab.chapters.zero_cost_checkpoints import formers_saving
from xpulab.errors import InputError

needs_paddleformers = pytest.mark.skipif(not formers_saving.installed(), reason="PaddleFormers is not installed")
EACH = (2, 3)
"""Every step but the first one: the optimizer fuses its buffers again."""


def differing_steps(run: formers_saving.Saved) -> list[int]:
    """The steps whose files do not hold the state of the step."""
    return [step for step, state in run.states.items() if any((run.files[step][key] != state[key]).any() for key in state)]


@pytest.mark.skipif(formers_saving.installed(), reason="PaddleFormers is installed")
def test_without_paddleformers_nothing_runs(tmp_path: Path):
    with pytest.raises(InputError, match="PaddleFormers is not installed"):
        formers_saving.train_and_save(tmp_path, 1)


@needs_paddleformers
def test_files_hold_the_state_of_their_step_when_buffers_are_fused_again(tmp_path: Path):
    run = formers_saving.train_and_save(tmp_path, 3, EACH)

    assert differing_steps(run) == []
    assert run.messages.count("OFFLOAD") == 3 * formers_saving.MICRO_BATCHES


@needs_paddleformers
def test_late_copies_are_seen_in_the_files(tmp_path: Path):
    manager = importlib.import_module(formers_saving.MODULE).ZeroCostCheckpointManager

    def without_waiting(self):
        self.current_pipeline_hook_step, self.current_worker = 0, None

    with mock.patch.object(manager, "sync_offload_status", without_waiting):
        assert differing_steps(formers_saving.train_and_save(tmp_path, 3, EACH)) == [1, 2]


@needs_paddleformers
def test_the_workaround_waits_for_every_save(tmp_path: Path):
    callback = importlib.import_module(formers_saving.MODULE).ZeroCostCheckpointCallback
    real = callback.on_step_end

    def with_its_step(self, args, state, *given, **named):
        self.manager.global_step = state.global_step
        return real(self, args, state, *given, **named)

    with mock.patch.object(callback, "on_step_end", with_its_step):
        assert differing_steps(formers_saving.train_and_save(tmp_path, 3)) == []


@needs_paddleformers
def test_the_average_begins_with_zero(tmp_path: Path):
    run = formers_saving.train_and_save(tmp_path, 1)

    for key, average in run.averages[1].items():
        assert np.allclose(average, (1 - formers_saving.KEEP) * run.states[1][key], atol=1e-6)


@needs_paddleformers
def test_a_folder_that_cannot_be_written_is_an_error_of_the_manager(tmp_path: Path):
    assert formers_saving.error_of_a_save(tmp_path / "good", True) == "no error"
    assert "DumpError" in formers_saving.error_of_a_save(tmp_path / "bad", False)
