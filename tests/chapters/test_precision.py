"""The tolerance accepts what rounding causes, and rejects fewer bits; devices that keep fewer bits get a wider one."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.chapters.shared import precision

LEFT, RIGHT = np.random.default_rng(0).standard_normal((2, 64, 64))
EXACT, SCALE = LEFT @ RIGHT, np.abs(LEFT) @ np.abs(RIGHT)


def rounded(array, bits):
    """The array with this many bits in its fraction."""
    fraction, exponent = np.frexp(array)
    return np.ldexp(np.round(fraction * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)


def error(left, right, dtype, kept=None):
    """The largest error of a product of these, in units of the tolerance."""
    return (np.abs(left @ right - EXACT) / precision.tolerance(EXACT, SCALE, dtype, kept)).max()


def test_rounding_of_inputs_and_result_is_within_the_tolerance():
    assert error(rounded(LEFT, 23), rounded(RIGHT, 23), "float32") < 1


def test_tf32_is_beyond_the_tolerance_of_float32_and_within_its_own():
    product = rounded(LEFT, 10), rounded(RIGHT, 10)
    assert error(*product, "float32") > 1 > error(*product, "float32", kept=10)


@pytest.mark.parametrize(("dtype", "kept"), [("float32", None), ("float32", 10), ("float64", None), ("bfloat16", None)])
def test_inputs_of_fewer_bits_are_beyond_the_tolerance(dtype, kept):
    assert error(precision.fewer_bits(LEFT, dtype, kept), precision.fewer_bits(RIGHT, dtype, kept), dtype, kept) > 1


def test_an_xpu_keeps_the_bits_of_its_matmul_mode(monkeypatch):
    monkeypatch.setattr(precision, "matmul_mode", lambda: {"float32": "TF32", "float16": "INT16", "bfloat16": "FLOAT"})
    assert precision.expected_bits_of_products("xpu") == {"float32": 10, "float16": 14}


@pytest.mark.parametrize(
    ("capability", "switch", "override", "bits"),
    [
        ((8, 0), True, None, {"float32": 10}),
        ((7, 0), True, None, {}),
        ((8, 0), False, None, {}),
        ((8, 0), True, "0", {}),
    ],
)
def test_a_gpu_keeps_the_bits_of_tf32_where_it_is_allowed(monkeypatch, capability, switch, override, bits):
    monkeypatch.setattr("paddle.device.cuda.get_device_capability", lambda: capability)
    monkeypatch.setattr("paddle.base.core.get_cublas_switch", lambda: switch, raising=False)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if override is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    assert precision.expected_bits_of_products("gpu") == bits


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_the_kernels_of_the_cpu_keep_all_bits(device):
    assert precision.expected_bits_of_products(device) == {}
