"""Devices that keep fewer bits of the factors of a product are known."""

from __future__ import annotations

import pytest

from xpulab.chapters.shared import precision


def test_an_xpu_keeps_the_bits_of_its_matmul_mode(monkeypatch):
    monkeypatch.setattr(precision, "matmul_mode", lambda: {"float32": "TF32", "float16": "INT16", "bfloat16": "FLOAT"})
    assert precision.expected_bits_of_products("xpu") == {"float32": 10, "float16": 14}


@pytest.mark.parametrize(
    ("capability", "switch", "override", "bits"),
    [((8, 0), True, None, 10), ((7, 0), True, None, 23), ((8, 0), False, None, 23), ((8, 0), True, "0", 23)],
)
def test_a_gpu_keeps_the_bits_of_tf32_where_it_is_allowed(monkeypatch, capability, switch, override, bits):
    monkeypatch.setattr("paddle.device.cuda.get_device_capability", lambda: capability)
    monkeypatch.setattr("paddle.base.core.get_cublas_switch", lambda: switch, raising=False)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if override is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    assert precision.expected_bits_of_products("gpu").get("float32", 23) == bits


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_the_kernels_of_the_cpu_keep_all_bits(device):
    assert precision.expected_bits_of_products(device) == {}
