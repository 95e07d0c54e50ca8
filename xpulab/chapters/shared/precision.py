"""Which types the device in use claims, the bits that its products should keep of their factors, and a row for few bits.

How far a result may be off is said by xpulab.reference.bounds; what notebooks need of it stands here, too.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import paddle

from xpulab.checks.compared import Compared, add_row
from xpulab.checks.table import Table
from xpulab.doctor.matmul_mode import matmul_mode
from xpulab.reference.bounds import BITS as BITS
from xpulab.reference.bounds import bound as bound
from xpulab.reference.bounds import fewer_bits as fewer_bits

BITS_OF_MODE = {"INT16": 14, "TF32": 10, "FLOAT16": 10}
"""By matmul mode the bits that a product keeps of its factors; other modes keep those of the type."""


def on_device(array: np.ndarray, dtype: Any) -> tuple[paddle.Tensor, np.ndarray]:
    """The array as a tensor of this type on the device, and the values that it has after rounding, in double precision.

    dtype: the name of a floating type.
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
    """Add a row: |got - want| within bounds.bound. coarse: the control, the same computation on inputs with fewer bits.

    scale: for each result, the sum of the absolute values of its terms. kept: as for bounds.bound.
    """
    unit = bound(want, scale, dtype, kept)
    found = got.astype("float64").numpy()
    add_row(rows, case, Compared({"": found}, {"": want}, {"": unit}, {"": coarse}))


def _tf32_on_gpu() -> bool:
    allowed = os.environ.get("NVIDIA_TF32_OVERRIDE") != "0" and paddle.base.core.get_cublas_switch()
    return bool(allowed and paddle.device.cuda.get_device_capability()[0] >= 8)
