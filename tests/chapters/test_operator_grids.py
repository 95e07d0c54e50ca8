"""Rows of operator grids for half types, for kernels that the CPU lacks, and for products that keep fewer bits."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.incubate.nn.functional as fused
import paddle.nn.functional as F
import pytest

from xpulab.chapters.numerics import layer_grids, llm_kernels
from xpulab.chapters.shared.operator_tester import compared
from xpulab.checks.compared import add_row
from xpulab.checks.table import Table


def outcome(found, right, dtype, composed=False):
    """The outcome of a row with these results, the first one and the gradients; all terms are 1."""
    rows, exact = Table("a.b"), [np.array(each, "float64") for each in right]
    pairs = [(each, np.ones(each.shape)) for each in exact]
    add_row(rows, "case", compared([np.array(each, "float64") for each in found], pairs, dtype, composed=composed))
    return rows._rows[0].outcome


def test_the_gradient_of_a_half_type_may_be_off_by_the_last_bit_of_a_term_and_the_result_by_its_own():
    off = 1 + 1.5 * 2.0**-7
    assert outcome([[1.0], [off]], [[1.0], [1.0]], "bfloat16") == "passed"
    assert outcome([[off], [1.0]], [[1.0], [1.0]], "bfloat16") == "failed"
    assert outcome([[off], [1.0]], [[1.0], [1.0]], "bfloat16", composed=True) == "passed"
    assert outcome([[1.0], [off]], [[1.0], [1.0]], "float32") == "failed"


@pytest.mark.parametrize(("spoiled", "expected"), [(0.0, "passed"), (2e37, "failed")])
def test_rotary_positions_beside_keys_without_elements(monkeypatch, spoiled, expected):
    def rotate(q, k, v, *, sin, cos, position_ids, use_neox_rotary_style):
        def turned(x):
            left, right = x.chunk(2, axis=-1)
            at_last = paddle.concat([-right, left], axis=-1)
            return x * cos[0, :, 0][position_ids].unsqueeze(2) + at_last * sin[0, :, 0][position_ids].unsqueeze(2)

        return turned(q) + (spoiled if k.size == 0 else 0.0), turned(k) if k.size else k * 1.0, v

    monkeypatch.setattr(fused, "fused_rotary_position_embedding", rotate)
    monkeypatch.setattr(layer_grids, "lacked", lambda *kernel: "")
    grid, (run, add) = layer_grids.rotary(["float32", "float64"]), layer_grids.RUN_ROTARY
    rows, case = Table("a.b"), grid.case(rotation="fused", heads="3 of none")
    add(rows, case, run([case])[0])
    assert rows._rows[0].outcome == expected


def test_tf32_passes_where_the_product_keeps_ten_bits_and_fails_otherwise(monkeypatch):
    real, found = F.linear, {}
    monkeypatch.setattr(F, "linear", lambda x, w: real(x + ((x * 1024).round() / 1024 - x).detach(), w))
    for kept in (10, None):
        rows = Table("a.b")
        llm_kernels.linear_rows(rows, [(8, 64, 8)], "float32", kept, None, 0)
        found[kept] = rows.record("means", 0.0).outcome
    assert found == {10: "passed", None: "failed"}
