"""The bits that operators keep are counted from values: lost bits of a factor, a sum or a gradient are seen."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.shared import kept_bits
from xpulab.chapters.shared.kept_bits import Factor


def rounded_to(bits):
    return lambda tensor: paddle.to_tensor(np.round(tensor.numpy() * 2.0**bits) / 2.0**bits).astype(tensor.dtype)


@pytest.mark.parametrize("bits", [1, 7, 10, 14, 22])
def test_a_product_of_rounded_factors_keeps_the_bits_of_the_rounding(bits):
    narrow = rounded_to(bits)
    assert kept_bits.bits_of_factor(Factor(lambda v, eye: narrow(v) @ eye), "float32") == bits


@pytest.mark.parametrize(
    ("promised", "measured", "used"),
    [(10, 10, {"float32": 10}), (10, 23, {}), (23, 10, {}), (10, 7, {"float32": 10}), (10, 14, {"float32": 14})],
)
def test_a_tolerance_follows_measured_bits_and_never_a_defect(monkeypatch, promised, measured, used):
    monkeypatch.setattr(kept_bits, "expected_bits_of_products", lambda device: {"float32": promised} if promised < 23 else {})
    monkeypatch.setattr(kept_bits, "_measured", lambda dtype, device: measured)
    assert kept_bits.bits_of_products("xpu") == used


def from_1024_on(real):
    """A product that rounds its factors to ten bits where it is large: TF32 by shape."""
    narrow = rounded_to(10)
    return lambda x, y: real(narrow(x), narrow(y)) if max(*x.shape, *y.shape) >= 1024 else real(x, y)


@pytest.mark.parametrize(("allowed", "kept"), [(True, {"float32": 10}), (False, {})])
def test_tf32_of_large_products_alone_is_seen_and_counts_where_it_is_allowed(monkeypatch, allowed, kept):
    monkeypatch.setattr(paddle.Tensor, "__matmul__", from_1024_on(paddle.Tensor.__matmul__))
    monkeypatch.setattr(kept_bits, "expected_bits_of_products", lambda device: {"float32": 10} if allowed else {})
    kept_bits._measured.cache_clear()
    try:
        assert kept_bits.bits_of_products("cpu") == kept
    finally:
        kept_bits._measured.cache_clear()
    by_shape = [kept_bits.bits_by_shape(shape, "float32") for shape in kept_bits.SHAPES]
    assert [min(bits.values()) for bits in by_shape] == [23, 10, 10, 10]


def test_every_shape_keeps_all_bits_on_the_cpu_and_its_control_fewer():
    assert kept_bits.shapes_of("cpu", "float32") == kept_bits.SHAPES
    for shape in kept_bits.SHAPES:
        assert kept_bits.bits_by_shape(shape, "float32") == {"left": 23, "right": 23}
        assert kept_bits.bits_by_shape(shape, "float32", lambda row: np.round(row * 2**20) / 2**20) == {"left": 20, "right": 20}
    assert [kept_bits.LARGE in kept_bits.shapes_of("gpu", dtype) for dtype in ("float32", "float64")] == [True, False]


def test_bounds_grow_only_where_products_lose_bits(monkeypatch):
    assert kept_bits.of_float32("cpu") == 23
    assert kept_bits.coarseness("cpu") == 0.0
    monkeypatch.setattr(kept_bits, "bits_of_products", lambda device: {"float32": 10})
    assert kept_bits.of_float32("xpu") == 10
    assert 2.0**-10 < kept_bits.coarseness("xpu") < 0.01
