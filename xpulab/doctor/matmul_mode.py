"""In which precision an XPU computes matmul: environment variables decide, and the first that applies wins."""

from __future__ import annotations

import os
from collections.abc import Mapping

DTYPES = ("float32", "float16", "bfloat16")


def matmul_mode(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By dtype ("float32", "float16", "bfloat16") the mode: FLOAT16, INT16, INT32, FLOAT, INT32_WITH_LL or TF32.

    A variable counts when it is set, even to 0. Source: FCCalcType in Paddle's XPU kernels of the XRE 5 era,
    UPSTREAM A.7. Read, not run on an XPU.
    """
    return {dtype: _mode(dtype, environ) for dtype in DTYPES}


def _mode(dtype: str, environ: Mapping[str, str]) -> str:
    rules = (
        ("XPU_PADDLE_FC_FLOAT16" in environ and dtype in ("float16", "float32"), "FLOAT16"),
        (dtype == "float16", "INT16"),
        ("XPU_PADDLE_FC_INT32" in environ, "INT32"),
        ("XPU_PADDLE_FC_LOCAL_INT16" in environ, "FLOAT"),
        ("XPU_PADDLE_FC_INT32_WITH_LL" in environ, "INT32_WITH_LL"),
        (dtype == "bfloat16" or "XPU_PADDLE_FC_TF32" in environ, "TF32"),
    )
    return next((mode for applies, mode in rules if applies), "INT16")
