"""The training that sharded ones are compared with, and where they can be tried."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.memory import sharded_accumulation

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


def test_the_rows_of_another_rank_change_the_weights():
    one, two = (sharded_accumulation.trained_alone(ranks, 3) for ranks in (1, 2))
    assert not any(np.allclose(left, right, atol=1e-4) for left, right in zip(one.weights, two.weights, strict=True))


def test_one_process_holds_two_moments_for_each_weight():
    alone = sharded_accumulation.trained_alone(1, 3)
    weights = sum(weight.size for weight in alone.weights)
    powers_of_beta = 2 * len(alone.weights)
    assert alone.state_size == 2 * weights + powers_of_beta


@pytest.mark.parametrize("way", sharded_accumulation.WAYS)
def test_every_way_is_tried_on_two_gpus(way):
    assert sharded_accumulation.why_not(way, "gpu", 2) == ""
    assert sharded_accumulation.why_not(way, "xpu", 1) == "it needs two cards"
    refused = sharded_accumulation.why_not(way, "sim", 2)
    assert refused == "" if way == "fleet, stage 1" else "GPU, NPU and XPU only" in refused
