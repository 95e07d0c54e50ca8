"""The precision of matmul that the environment variables of an XPU request. It is an expectation: measure the real one."""

from __future__ import annotations

import os

_FLOAT32 = {
    "XPU_PADDLE_FC_FLOAT": "FLOAT",
    "XPU_PADDLE_FC_LOCAL_INT16": "FLOAT",
    "XPU_PADDLE_FC_TF32": "TF32",
    "XPU_PADDLE_FC_INT16": "INT16",
    "XPU_PADDLE_FC_INT32": "INT32",
    "XPU_PADDLE_FC_INT32_WITH_LL": "INT32_WITH_LL",
}
_FLOAT16 = {
    "XPU_PADDLE_FC_FLOAT16": "FLOAT16",
    "XPU_PADDLE_FC_INT16": "INT16",
    "XPU_PADDLE_FC_FLOAT": "FLOAT",
    "XPU_PADDLE_FC_LOCAL_INT16": "FLOAT",
}
_BFLOAT16 = {"XPU_PADDLE_FC_FLOAT": "FLOAT", "XPU_PADDLE_FC_LOCAL_INT16": "FLOAT"}

MODES = {"float32": (_FLOAT32, "TF32"), "float16": (_FLOAT16, "FLOAT16"), "bfloat16": (_BFLOAT16, "TF32")}
"""By dtype the variables with their modes, the one that takes precedence first, and the mode when none is set."""


def matmul_mode() -> dict[str, str]:
    """By dtype ("float32", "float16", "bfloat16") the mode: FLOAT16, INT16, INT32, FLOAT, INT32_WITH_LL or TF32.

    The first variable that applies decides. A variable counts when it is set, even to 0.

    Never rely on the result, measure the error of a matmul: the default depends on card and release. It is INT16 on KL2;
    on P800 TF32 since Paddle#70859 (Paddle 3.0 to 3.3), and FLOAT for float32 since Paddle#78625 (after 3.3).
    Source: FCCalcType in paddle/phi/kernels/xpu/xpu_api_wrapper.h of the wheel of Paddle 3.3.1, Paddle#75481, Paddle#78630.
    Not run on an XPU.
    """
    return {
        dtype: next((mode for name, mode in variables.items() if name in os.environ), default)
        for dtype, (variables, default) in MODES.items()
    }
