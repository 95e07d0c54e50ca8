"""The precision of matmul that the environment variables of an XPU request. It is an expectation: measure the real one."""

from __future__ import annotations

import os
from collections.abc import Mapping

DTYPES = ("float32", "float16", "bfloat16")

DEFAULT = "TF32"
"""On P800 with Paddle 3.0 to 3.3, for float32 and bfloat16, when no variable applies."""


def matmul_mode(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By dtype ("float32", "float16", "bfloat16") the mode: FLOAT16, INT16, INT32, FLOAT, INT32_WITH_LL or TF32.

    The first variable that applies decides. A variable counts when it is set, even to 0.

    Never rely on the result, measure the error of a matmul: the default depends on card and release. It is INT16 on KL2;
    on P800 TF32 since Paddle#70859 (Paddle 3.0 to 3.3), and FLOAT for float32 since Paddle#78625 (after 3.3).
    Source: FCCalcType in Paddle's XPU kernels, Paddle#75481, Paddle#78630. Not run on an XPU; that float16 uses INT16 was
    read in the kernels before Paddle#70859 and is not confirmed for P800.
    """
    return {dtype: _mode(dtype, environ) for dtype in DTYPES}


def _mode(dtype: str, environ: Mapping[str, str]) -> str:
    rules = (
        ("XPU_PADDLE_FC_FLOAT16" in environ and dtype in ("float16", "float32"), "FLOAT16"),
        (dtype == "float16", "INT16"),
        ("XPU_PADDLE_FC_INT32" in environ, "INT32"),
        ("XPU_PADDLE_FC_LOCAL_INT16" in environ, "FLOAT"),
        ("XPU_PADDLE_FC_INT32_WITH_LL" in environ, "INT32_WITH_LL"),
        ("XPU_PADDLE_FC_TF32" in environ, "TF32"),
    )
    return next((mode for applies, mode in rules if applies), DEFAULT)
