"""The bits that operators keep are counted from values: lost bits of a factor, a sum or a gradient are seen."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.shared import kept_bits
from xpulab.chapters.shared.kept_bits import FACTORS, SUMS, Factor
from xpulab.chapters.shared.precision import BITS


def rounded_to(bits):
    return lambda tensor: paddle.to_tensor(np.round(tensor.numpy() * 2.0**bits) / 2.0**bits).astype(tensor.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FACTORS)
def test_each_operator_of_the_cpu_keeps_the_bits_of_the_type(name, dtype):
    factor = FACTORS[name]
    assert BITS[dtype] - factor.lost <= kept_bits.bits_of_factor(factor, dtype) <= BITS[dtype]


@pytest.mark.parametrize("bits", [1, 7, 10, 14, 22])
def test_a_product_of_rounded_factors_keeps_the_bits_of_the_rounding(bits):
    narrow = rounded_to(bits)
    assert kept_bits.bits_of_factor(Factor(lambda v, eye: narrow(v) @ eye), "float32") == bits


def test_bits_that_are_cut_off_are_lost_too():
    def cut(v, eye):
        return paddle.to_tensor((v.numpy().view("uint32") & np.uint32(0xFFFFE000)).view("float32")) @ eye

    assert kept_bits.bits_of_factor(Factor(cut), "float32") == 10


def test_fixed_point_numbers_of_16_bits_up_to_2_keep_13():
    step = 2 / 32767
    assert kept_bits.bits_of_factor(Factor(lambda v, eye: (v / step).round() * step), "float32") == 13


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_the_cpu_have_a_wide_accumulator(name, dtype):
    assert kept_bits.bits_of_sum(SUMS[name], dtype) == kept_bits.LARGEST_POWER[dtype]


def test_a_sum_in_float16_loses_small_terms():
    def in_float16(terms):
        total = np.zeros(len(terms), dtype="float16")
        for column in terms.numpy().T:
            total += column.astype("float16")
        return paddle.to_tensor(total.astype("float32"))

    assert 9 <= kept_bits.bits_of_sum(in_float16, "float32", largest=14) <= 11


@pytest.mark.parametrize(
    ("promised", "measured", "used"),
    [(10, 10, {"float32": 10}), (10, 23, {}), (23, 10, {}), (10, 7, {"float32": 10}), (10, 14, {"float32": 14})],
)
def test_a_tolerance_follows_measured_bits_and_never_a_defect(monkeypatch, promised, measured, used):
    monkeypatch.setattr(kept_bits, "expected_bits_of_products", lambda device: {"float32": promised} if promised < 23 else {})
    monkeypatch.setattr(kept_bits, "_measured", lambda dtype: measured)
    assert kept_bits.bits_of_products("xpu") == used


def test_the_products_of_the_cpu_keep_everything():
    assert kept_bits.bits_of_products("cpu") == {}


def test_bounds_grow_only_where_products_lose_bits(monkeypatch):
    assert kept_bits.of_float32("cpu") == 23
    assert kept_bits.coarseness("cpu") == 0.0
    monkeypatch.setattr(kept_bits, "bits_of_products", lambda device: {"float32": 10})
    assert kept_bits.of_float32("xpu") == 10
    assert 2.0**-10 < kept_bits.coarseness("xpu") < 0.01
