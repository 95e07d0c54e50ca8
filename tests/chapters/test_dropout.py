"""Dropout in models with and without it in their attention."""

from __future__ import annotations

import paddle
import pytest

from xpulab.chapters.checkpoints.resume_plan import with_dropout
from xpulab.chapters.shared import models

pytestmark = pytest.mark.integration

TOKENS = [[3, 4, 5, 6, 7, 8, 9, 10]]


def scores(network):
    output = network(input_ids=paddle.to_tensor(TOKENS))
    return (output[0] if isinstance(output, tuple) else output).numpy()


@pytest.mark.parametrize("model", ["tiny-qwen2", "tiny-llama"])
def test_dropout_acts_in_training_only(model):
    network = with_dropout(models.new_model(model, 0), 0.5)
    network.train()
    assert (scores(network) != scores(network)).any()
    network.eval()
    assert (scores(network) == scores(network)).all()


@pytest.mark.parametrize("model", ["tiny-qwen2", "tiny-llama"])
def test_a_rate_of_zero_changes_nothing(model):
    network = with_dropout(models.new_model(model, 0), 0.0)
    network.train()
    assert (scores(network) == scores(network)).all()
