"""Compare results of few bits with double precision: what a type keeps, the error that rounding may cause, and a control.

Offered: BITS, HALVES, LEAST, LARGEST, on_device, supported_types, expected_bits_of_products, fewer_bits, tolerance, compare.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import paddle

from xpulab.checks.table import Table
from xpulab.doctor.matmul_mode import matmul_mode

BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
"""By type the bits of its fraction."""

HALVES = ("float16", "bfloat16")

LEAST = {"float16": 2.0**-24}
"""By type the smallest number above 0, where that is near to what operators compute with."""

LARGEST = {"float16": 65504.0 * (1 - 2.0**-10)}
"""By type beyond which number a result may be infinite, where operators reach it."""

BITS_OF_MODE = {"INT16": 14, "TF32": 10, "FLOAT16": 10}
"""By matmul mode the bits that a product keeps of its factors; other modes keep those of the type."""

_OF_SUMS = {"float64": 52}
"""By type the bits in which sums are accumulated, when not in single precision."""


def on_device(array: np.ndarray, dtype: Any) -> tuple[paddle.Tensor, np.ndarray]:
    """The array as a tensor of this type on the device, and the values that it has after rounding, in double precision.

    dtype: the name of a type, a key of BITS.
    """
    tensor = paddle.to_tensor(array).astype(dtype)
    return tensor, tensor.astype("float64").numpy()


def supported_types(device: str) -> list[str]:
    """The types in which the device ("cpu", "gpu", "xpu" or "sim") claims to compute: float32, float64, and those of 16 bits.

    The CPU is left out of the types of 16 bits: it claims bfloat16, but lacks most kernels.
    """
    half = {"float16": paddle.amp.is_float16_supported, "bfloat16": paddle.amp.is_bfloat16_supported}
    return ["float32", "float64"] + [dtype for dtype, supported in half.items() if device != "cpu" and supported()]


def expected_bits_of_products(device: str) -> dict[str, int]:
    """By type the bits that a matrix product should keep of its factors, for types in which it keeps fewer than the type has.

    device: "cpu", "gpu", "xpu" or "sim". An XPU computes in the matmul mode that release and variables select. A GPU of
    capability 8.0 or higher may compute float32 in TF32: Paddle's switch says whether, and NVIDIA_TF32_OVERRIDE=0 forbids it.
    Source: set_cublas_switch in paddle/fluid/pybind/pybind.cc, test/legacy_test/test_tf32_cublas.py; not run on a GPU or XPU.
    """
    if device == "xpu":
        return {dtype: BITS_OF_MODE[mode] for dtype, mode in matmul_mode().items() if mode in BITS_OF_MODE}
    if device == "gpu" and _tf32_on_gpu():
        return {"float32": BITS_OF_MODE["TF32"]}
    return {}


def fewer_bits(array: np.ndarray, dtype: str, kept: int | None = None) -> np.ndarray:
    """The array with ten bits less in its fraction than the type, or `kept`, has, but at least three bits."""
    fraction, exponent = np.frexp(array)
    steps = 2.0 ** max(3, min(BITS[dtype], kept or BITS["float64"]) - 10)
    return np.ldexp(np.round(fraction * steps) / steps, exponent)


def tolerance(want: np.ndarray, scale: np.ndarray, dtype: str, kept: int | None = None) -> np.ndarray:
    """By element the error that rounding of the result and of the sums may cause.

    want: the exact results. scale: for each result, the sum of the absolute values of its terms. kept: the bits that a sum
    keeps; by default those of single precision, of float64 its own.
    """
    kept = kept or _OF_SUMS.get(dtype, BITS["float32"])
    return 2.0 ** -BITS[dtype] * np.abs(want) + 2.0 ** (3 - kept) * scale


def compare(
    rows: Table,
    case: str,
    dtype: str,
    got: paddle.Tensor,
    want: np.ndarray,
    coarse: np.ndarray,
    scale: np.ndarray,
    kept: int | None = None,
) -> None:
    """Add a row: |got - want| in units of the tolerance, at most 1.

    coarse: the control, the same computation on inputs with fewer bits. scale, kept: as for tolerance().
    """
    unit = tolerance(want, scale, dtype, kept)
    rows.close(case, got.astype("float64").numpy() / unit, want / unit, atol=1.0, control=coarse / unit)


def _tf32_on_gpu() -> bool:
    allowed = os.environ.get("NVIDIA_TF32_OVERRIDE") != "0" and paddle.base.core.get_cublas_switch()
    return bool(allowed and paddle.device.cuda.get_device_capability()[0] >= 8)
