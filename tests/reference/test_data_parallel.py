"""The numpy training of all ranks: its gradients are those of finite differences, and ranks matter."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.reference import data_parallel

pytestmark = pytest.mark.unit


def loss(weights, ranks, seed):
    rows, labels = (
        np.concatenate(each) for each in zip(*(data_parallel.batch(rank, seed) for rank in range(ranks)), strict=True)
    )
    first, first_bias, second, second_bias = weights
    logits = np.tanh(rows.astype("float64") @ first + first_bias) @ second + second_bias
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]))


def test_the_first_step_follows_the_gradient_of_the_loss_over_all_ranks(monkeypatch):
    monkeypatch.setattr(data_parallel, "STEPS", 1)
    before, after = data_parallel.weights(4), data_parallel.train(3, 4).weights
    for number in range(4):
        place = tuple(0 for _ in before[number].shape)
        moved = [each.copy() for each in before]
        moved[number][place] += 1e-6
        slope = (loss(moved, 3, 4) - loss(before, 3, 4)) / 1e-6
        assert after[number][place] == pytest.approx(before[number][place] - data_parallel.RATE * slope, abs=1e-5)


def test_a_rank_that_gets_nothing_from_the_others_has_other_losses():
    right, alone = data_parallel.train(3, 0), data_parallel.train_alone(3, 1, 0)
    assert right.losses[1][0] == alone.losses[1][0]
    assert np.abs(right.losses[1][1:] - alone.losses[1][1:]).min() > 0.02
