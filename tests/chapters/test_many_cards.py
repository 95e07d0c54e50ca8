"""The files of the ranks of a training on several cards."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from xpulab.chapters.shared import launched


def test_moments_come_from_the_last_checkpoint(tmp_path):
    for step in (2, 10):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        save_file(
            {"w/moment1_0": np.full(2, step), "w/moment2_0": np.zeros(2)}, folder / "optimizer-00001-of-00001.safetensors"
        )
    moments = launched.Trained([], 0.0, tmp_path, []).moments()
    assert {name: value.tolist() for name, value in moments.items()} == {"w": [10, 10]}


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no file model"):
        launched.Trained([], 0.0, tmp_path, []).weights()
