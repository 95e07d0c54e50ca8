"""Ways of sharing a training among cards: batches, what a device can do, files of the ranks."""

from __future__ import annotations

import json
import math

import numpy as np
import paddle
import pytest
from safetensors.numpy import save_file

from xpulab.chapters.train_on_many_cards import launched, ways


@pytest.mark.parametrize("name", ways.WAYS)
def test_every_way_has_eight_rows_in_a_step_as_the_mean_of_two_parts(name):
    way = ways.WAYS[name]
    size, accumulation = (way.arguments[f"{key}"] for key in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    shared = math.prod(value for key, value in way.arguments.items() if key.endswith("_parallel_degree"))
    assert way.cards // shared * size * accumulation == 8
    assert 8 // size == 2


def test_a_cpu_divides_rows_and_the_optimizer_only():
    assert list(ways.possible("cpu", 8)) == ["data parallel", "sharding, stage 1"]


def test_more_cards_allow_more_ways_and_none_needs_more_than_there_are():
    counts = [len(ways.possible("sim", cards)) for cards in (1, 2, 4, 8)]
    assert counts == [7, 7, 10, 11]
    assert all(way.cards <= 4 for way in ways.possible("sim", 4).values())


def test_stage_2_gives_whole_weights_to_ranks_in_the_order_of_the_model():
    assert ways.fullest([30, 10, 10, 10, 40]) == 70
    assert ways.WAYS["sharding, stage 2"].shares_of([30, 10, 10, 10, 40]) == [1.0, 0.7]
    assert ways.WAYS["sharding, stage 3"].shares_of([30, 10, 10, 10, 40]) == [0.5, 0.5]


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


def test_moments_of_stage_3_are_joined_from_the_parts_of_all_ranks(tmp_path):
    folder = tmp_path / "checkpoint-4"
    folder.mkdir()
    save_file({"a": np.zeros((2, 3), "float32"), "b": np.zeros(3, "float32")}, tmp_path / "model.safetensors")
    for rank in range(2):
        part = np.arange(4 * rank, 4 * rank + 4, dtype="float32")  # two numbers more than the weight has
        held = {"slice@x.w_0_fp32_master_0_moment1_0": part, "x.b_0_moment1_0": np.ones(3, "float32"), "x.b_0_moment2_0": part}
        paddle.save(held, str(folder / f"optimizer.shard0{rank}.pdopt"))
    trained = launched.Trained([], 0.0, tmp_path, [{"names": {"a": "x.w_0", "b": "x.b_0"}}])
    assert {name: value.tolist() for name, value in trained.moments().items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": [1, 1, 1]}


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no file model"):
        launched.Trained([], 0.0, tmp_path, []).weights()


def test_a_missing_name_and_another_shape_differ_without_bound():
    found = launched.differences({"a": np.ones(2), "b": np.ones(2)}, {"a": np.ones(3), "c": np.ones(2)})
    assert found == {"a": np.inf, "b": np.inf, "c": np.inf}
    assert launched.differences({"a": np.ones(2)}, {"a": np.array([1.0, 1.5])}) == {"a": 0.5}
