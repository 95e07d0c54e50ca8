"""Rows about kernels pass on a correct device, reject their controls, and fail when bits or columns are lost."""

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


HEADS = llm_kernels.Heads(batch=2, length=5, heads=4, key_heads=2, size=8)


@pytest.mark.parametrize(
    "add_rows",
    [
        lambda rows: llm_kernels.linear_rows(rows, llm_kernels.around([4]), "float32", None, 0),
        lambda rows: llm_kernels.linear_rows(rows, [(4, 4096, 8), (2, 8, 40_000)], "float64", None, 0),
        lambda rows: llm_kernels.chunk_rows(rows, 40_000, "float32", None, 0),
        lambda rows: llm_kernels.rows_of_batches(rows, 1025, "float32", None, 0),
        lambda rows: llm_kernels.attention_rows(rows, llm_kernels.with_mask, HEADS, "float32", None, 0),
        lambda rows: llm_kernels.attention_rows(rows, llm_kernels.causal, HEADS, "float64", None, 0),
        lambda rows: llm_kernels.attention_rows(rows, llm_kernels.flash, HEADS, "float32", None, 0),
        lambda rows: fused_kernels.fused_rows(rows, "float32", None, 0),
    ],
)
def test_a_correct_device_passes_and_each_control_is_rejected(add_rows):
    record = recorded(add_rows)
    assert record.outcome == "passed"
    assert {row.control for row in record.rows if row.outcome != "skipped"} == {"rejected"}


def test_frozen_inputs_leave_the_gradients_of_the_others_as_they_are():
    record = recorded(lambda rows: fused_kernels.frozen_rows(rows, "float32", None, 0))
    assert [row.case for row in record.rows if row.outcome == "failed"] == ["layer_norm, input 2 is frozen, float32"]  # known
    assert {row.control for row in record.rows if row.outcome != "skipped"} == {"rejected"}


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


def test_a_linear_layer_in_bfloat16_fails(monkeypatch):
    real = F.linear
    monkeypatch.setattr(F, "linear", lambda x, w: real(x + (x.astype("bfloat16").astype("float32") - x).detach(), w))
    assert recorded(lambda rows: llm_kernels.linear_rows(rows, [(8, 64, 8)], "float32", None, 0)).outcome == "failed"


def test_tf32_passes_where_the_product_keeps_ten_bits_and_fails_otherwise(monkeypatch):
    real = F.linear
    monkeypatch.setattr(F, "linear", lambda x, w: real(x + ((x * 1024).round() / 1024 - x).detach(), w))
    outcomes = {
        kept: recorded(lambda rows, kept=kept: llm_kernels.linear_rows(rows, [(8, 64, 8)], "float32", kept, 0))
        for kept in (10, None)
    }
    assert {kept: record.outcome for kept, record in outcomes.items()} == {10: "passed", None: "failed"}


def test_the_bound_grows_with_the_root_of_the_number_of_terms():
    short, long = (llm_kernels.bound("float32", None, terms) for terms in (1024, 4 * 1024))
    assert short < long < 2 * short + 1e-12


def test_each_shape_around_powers_of_two_occurs_once():
    shapes = llm_kernels.around(range(5, 8))
    assert len(set(shapes)) == len(shapes) == 25  # (64, 64, 64) stands for three
    assert {63, 64, 65, 128} < {size for shape in shapes for size in shape}
