"""What is measured for the formula of chapter 09: activations, and memory with master weights."""

from __future__ import annotations

import paddle
import pytest

from xpulab.chapters.memory import formula_cases
from xpulab.reference import cost

pytestmark = pytest.mark.integration

SMALL = cost.Model(layers=1, hidden=16, intermediate=24, heads=2, kv_heads=2, vocabulary=32)


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_adamw_with_master_weights_holds_twelve_bytes_for_each_weight(dtype):
    found, count = formula_cases.bytes_with_master_weights(SMALL, dtype), SMALL.parameters()
    powers_of_beta = 2 * 4 * (3 + 9 * SMALL.layers)  # two of each weight: embedding, last norm and head; those of a layer
    assert (found.parameters, found.gradients, found.optimizer) == (2 * count, 2 * count, 12 * count + powers_of_beta)


def test_recomputation_keeps_less():
    assert formula_cases.recomputed_activations_of(SMALL, 8, 2) < formula_cases.activations_of(SMALL, 8, 2)


def test_the_formula_takes_the_options_of_a_training():
    plain, half = (formula_cases.formula_of(SMALL, 8, 2, **options) for options in ({}, {"precision": cost.BFLOAT16}))
    assert plain.parameters == 4 * SMALL.parameters() == 2 * half.parameters
    assert formula_cases.formula_of(SMALL, 8, 2, recompute=True).activations != plain.activations
