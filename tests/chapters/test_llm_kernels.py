"""Rows about kernels that the CPU lacks, and about products that keep fewer bits than the CPU's."""

from __future__ import annotations

import paddle
import paddle.incubate.nn.functional as fused
import paddle.nn.functional as F
import pytest

from xpulab.chapters.numerics import fused_kernels, llm_kernels
from xpulab.checks.table import Table


def recorded(add_rows):
    table = Table("kernels.table")
    add_rows(table)
    return table.record("means", 0.0)


def rotary(spoiled=0.0):
    """fused_rotary_position_embedding, for which the CPU has no kernel. spoiled: added to queries beside empty keys."""

    def turned(x, sin, cos):
        left, right = x.chunk(2, axis=-1)
        return x * cos + paddle.concat([-right, left], axis=-1) * sin

    def rotate(q, k, v, *, sin, cos, use_neox_rotary_style):
        assert not use_neox_rotary_style
        queries = turned(q, sin, cos) + (spoiled if k is not None and k.size == 0 else 0.0)
        return queries, *(None if each is None else turned(each, sin, cos) if each.size else each * 1.0 for each in (k, v))

    return rotate


@pytest.mark.parametrize(("spoiled", "outcome"), [(0.0, "passed"), (2e37, "failed")])
def test_rotary_positions_beside_keys_without_elements(monkeypatch, spoiled, outcome):
    monkeypatch.setattr(fused, "fused_rotary_position_embedding", rotary(spoiled))
    record = recorded(lambda rows: fused_kernels.rotary_rows_of_nothing(rows, "float32", None, 0))
    assert record.outcome == outcome
    assert {row.control for row in record.rows} == {"rejected"}


def test_tf32_passes_where_the_product_keeps_ten_bits_and_fails_otherwise(monkeypatch):
    real = F.linear
    monkeypatch.setattr(F, "linear", lambda x, w: real(x + ((x * 1024).round() / 1024 - x).detach(), w))
    outcomes = {
        kept: recorded(lambda rows, kept=kept: llm_kernels.linear_rows(rows, [(8, 64, 8)], "float32", kept, 0))
        for kept in (10, None)
    }
    assert {kept: record.outcome for kept, record in outcomes.items()} == {10: "passed", None: "failed"}
