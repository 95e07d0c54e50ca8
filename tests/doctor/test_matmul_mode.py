"""The expected precision of matmul on an XPU follows the first variable that applies."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from xpulab.doctor.matmul_mode import MODES, matmul_mode

SOURCE = "include/paddle/phi/kernels/xpu/xpu_api_wrapper.h"


@pytest.mark.parametrize(
    ("variables", "float32", "float16", "bfloat16"),
    [
        ([], "TF32", "FLOAT16", "TF32"),
        (["FLOAT"], "FLOAT", "FLOAT", "FLOAT"),
        (["LOCAL_INT16"], "FLOAT", "FLOAT", "FLOAT"),
        (["INT16"], "INT16", "INT16", "TF32"),
        (["INT32", "LOCAL_INT16"], "FLOAT", "FLOAT", "FLOAT"),
        (["LOCAL_INT16", "INT32_WITH_LL", "TF32"], "FLOAT", "FLOAT", "FLOAT"),
        (["INT16", "FLOAT"], "FLOAT", "INT16", "FLOAT"),
    ],
)
def test_first_variable_that_applies_wins(variables, float32, float16, bfloat16, monkeypatch):
    for name in variables:
        monkeypatch.setenv(f"XPU_PADDLE_FC_{name}", "1")
    assert matmul_mode() == {"float32": float32, "float16": float16, "bfloat16": bfloat16}


def test_order_of_the_variables_is_that_of_the_installed_paddle():
    """Every wheel of Paddle contains the header of the XPU build, the wheel for the CPU too."""
    header = (Path(importlib.util.find_spec("paddle").origin).parent / SOURCE).read_text(encoding="utf-8")
    listed = re.findall(r'\{"(XPU_PADDLE_FC_\w+)", XPUFCCalcType::FC_(\w+)\}', header)
    assert listed == [pair for variables, _ in MODES.values() for pair in variables.items()]
