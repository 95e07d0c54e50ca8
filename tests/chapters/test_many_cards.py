"""Ways of sharing a training among cards: batches, what a device can do, files of the ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from xpulab.chapters.train_on_many_cards import launched, ways


def test_configurations_of_a_node_use_all_its_cards(tmp_path):
    written = ways.write_configs(tmp_path, {"learning_rate": 1e-3}, cards=8)
    read = [json.loads(path.read_text(encoding="utf-8")) for path in written]
    assert [each["learning_rate"] for each in read] == [1e-3] * 3
    assert [each.get("tensor_parallel_degree", 1) * each.get("pipeline_parallel_degree", 1) for each in read] == [1, 8, 8]


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
