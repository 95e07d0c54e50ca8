"""The expected precision of matmul on an XPU follows the first variable that applies."""

from __future__ import annotations

import pytest

from xpulab.doctor.matmul_mode import matmul_mode


@pytest.mark.parametrize(
    ("variables", "float32", "float16", "bfloat16"),
    [
        ([], "TF32", "INT16", "TF32"),
        (["LOCAL_INT16"], "FLOAT", "INT16", "FLOAT"),
        (["TF32"], "TF32", "INT16", "TF32"),
        (["FLOAT16"], "FLOAT16", "FLOAT16", "TF32"),
        (["INT32"], "INT32", "INT16", "INT32"),
        (["INT32_WITH_LL"], "INT32_WITH_LL", "INT16", "INT32_WITH_LL"),
        (["INT32", "LOCAL_INT16"], "INT32", "INT16", "INT32"),
        (["LOCAL_INT16", "INT32_WITH_LL", "TF32"], "FLOAT", "INT16", "FLOAT"),
        (["FLOAT16", "LOCAL_INT16"], "FLOAT16", "FLOAT16", "FLOAT"),
    ],
)
def test_first_variable_that_applies_wins(variables, float32, float16, bfloat16):
    environ = {f"XPU_PADDLE_FC_{name}": "1" for name in variables}
    assert matmul_mode(environ) == {"float32": float32, "float16": float16, "bfloat16": bfloat16}


def test_variable_counts_even_when_it_is_0():
    assert matmul_mode({"XPU_PADDLE_FC_LOCAL_INT16": "0"})["float32"] == "FLOAT"
