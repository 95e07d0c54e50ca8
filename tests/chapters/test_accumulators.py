"""The bits of an accumulator are counted from values, and widen a bound only where and as far as a library promises no more."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from xpulab.chapters.numerics import accumulators, llm_kernels
from xpulab.chapters.numerics.accumulators import LONG, SIDE, SUMS, bits_of_sum, in_parts
from xpulab.checks.table import Table


@pytest.mark.parametrize("length", [SIDE, LONG])
@pytest.mark.parametrize(("dtype", "bits"), [("float32", 7), ("float32", 10), ("float32", 16), ("float64", 23)])
def test_an_accumulator_of_few_bits_is_recognized(dtype, bits, length):
    assert bits_of_sum(partial(in_parts, bits=bits), dtype, length) == bits


@pytest.mark.parametrize("length", [SIDE, LONG])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_in_single_precision_is_recognized(name, length):
    assert bits_of_sum(SUMS[name], "float32", length) == 22


@pytest.mark.parametrize(
    ("name", "dtype", "length", "device", "least"),
    [
        ("matmul", "bfloat16", LONG, "gpu", 7),
        ("linear", "float16", LONG, "xpu", 10),
        ("matmul", "bfloat16", LONG, "sim", 22),
        ("matmul", "bfloat16", SIDE, "gpu", 22),
        ("sum of a row", "bfloat16", LONG, "gpu", 22),
        ("matmul", "float32", LONG, "gpu", 22),
    ],
)
def test_only_long_products_of_half_types_on_cards_may_be_added_in_parts(name, dtype, length, device, least):
    assert accumulators.least_bits(name, dtype, length, device) == least


@pytest.mark.parametrize(("measured", "used"), [(22, {}), (7, {"bfloat16": 7}), (12, {"bfloat16": 12}), (3, {"bfloat16": 7})])
def test_a_bound_follows_the_measured_accumulator_and_never_a_defect(monkeypatch, measured, used):
    monkeypatch.setattr(accumulators, "supported_types", lambda device: ["float32", "bfloat16"])
    monkeypatch.setattr(accumulators, "bits_of_sum", lambda add, dtype, length: measured)
    monkeypatch.setattr(accumulators, "bits_of_parts", accumulators.bits_of_parts.__wrapped__)
    assert accumulators.bits_of_parts("gpu") == used
    assert accumulators.bits_of_parts("sim") == accumulators.bits_of_parts("cpu") == {}


def split_k(x, weight):
    """A linear layer whose sums are added in eight parts in bfloat16; gradients are those of a layer in float32."""
    parts = sum(
        (part @ other).astype("bfloat16").astype("float32")
        for part, other in zip(x.chunk(8, 1), weight.chunk(8, 0), strict=True)
    )
    narrow = paddle.to_tensor(parts.numpy()).astype("bfloat16").astype("float32")
    exact = x @ weight
    return exact + (narrow - exact).detach()


@pytest.mark.parametrize(("parts", "outcome"), [(7, "passed"), (None, "failed")])
def test_a_layer_whose_parts_are_added_in_bfloat16_passes_only_with_the_bits_of_its_parts(monkeypatch, parts, outcome):
    monkeypatch.setattr(F, "linear", split_k)
    rows = Table("a.b")
    llm_kernels.linear_rows(rows, [(8, 4096, 64)], "float32", None, parts, 0)
    assert rows.record("means", 0.0).outcome == outcome


def test_with_the_bits_of_parts_a_wrong_layer_is_still_red(monkeypatch):
    real = F.linear
    monkeypatch.setattr(F, "linear", lambda x, weight: real(x, weight * np.float32(1.25)))
    rows = Table("a.b")
    llm_kernels.linear_rows(rows, [(8, 4096, 64)], "float32", None, 7, 0)
    assert rows.record("means", 0.0).outcome == "failed"
