"""The training that sharded ones are compared with, and where they can be tried."""

from __future__ import annotations

import paddle
import pytest

from xpulab.chapters.memory import sharded_accumulation

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


@pytest.mark.parametrize("way", sharded_accumulation.WAYS)
def test_every_way_is_tried_on_two_gpus(way):
    assert sharded_accumulation.why_not(way, "gpu", 2) == ""
    assert sharded_accumulation.why_not(way, "xpu", 1) == "it needs two cards"
    refused = sharded_accumulation.why_not(way, "sim", 2)
    assert refused == "" if way == "fleet, stage 1" else "GPU, NPU and XPU only" in refused
