"""A row is skipped where the device is known to lack a kernel; the words of an error prove nothing."""

from __future__ import annotations

import paddle
import pytest

from xpulab import processor
from xpulab.chapters.shared import missing_kernels
from xpulab.chapters.shared.missing_kernels import lacked, results_of
from xpulab.checks.table import Table
from xpulab.records.refusals import refusal

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


def tried(error, kernel, dtype, form=""):
    """The record of a table with one computation that raises this error."""

    def fails():
        raise error

    table = Table("kernels.table")
    assert results_of(table, "case", fails, kernel, dtype, form) == []
    return table.record("means", 0.0)


ERRORS = [
    RuntimeError("(NotFound) no kernel\n at /paddle/paddle/phi/core/kernel_factory.cc:273"),
    RuntimeError("The kernel `swiglu` is not registered"),
    NotImplementedError("float32 is not supported, Unimplemented"),
    AttributeError("Tensor has no attribute"),
    MemoryError("out of memory"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_that_nothing_declares_is_red_and_prints_the_entry(error):
    record = tried(error, "swiglu", "float32")
    assert record.outcome == "failed"
    (row,) = record.rows
    assert "call: swiglu" in row.measured and "devices: [cpu]" in row.measured and "types: [float32]" in row.measured


def test_a_type_that_the_wheel_does_not_list_for_an_operator_is_skipped():
    assert tried(RuntimeError("anything"), "adamw", "bfloat16").outcome == "skipped"
    assert "adamw" in lacked("adamw", "bfloat16") and not lacked("adamw", "float32")


@pytest.fixture
def processor_without(monkeypatch):
    """A function that makes this processor one without a feature, or with all of them."""
    refusal.cache_clear()
    yield lambda missing="": monkeypatch.setattr(processor, "lacks", lambda feature: feature == missing)
    refusal.cache_clear()


def test_a_kernel_that_ends_the_process_on_this_processor_is_not_tried(processor_without):
    processor_without("avx512f")
    rows = Table("kernels.table")
    assert results_of(rows, "case", lambda: pytest.fail("it was called"), "fused_rms_norm_quant", "float32") == []
    skipped = rows.record("means", 0.0)
    assert skipped.outcome == "skipped" and "AVX-512" in skipped.reason
    processor_without()
    refusal.cache_clear()
    assert results_of(Table("kernels.table"), "there", lambda: [paddle.ones([1])], "fused_rms_norm_quant", "float32")


def test_where_a_card_has_no_kernel_of_an_operator_the_types_of_the_cpu_count(monkeypatch):
    listed = {"logsigmoid": ["(CPU, NCHW, float32)"], "scale": ["(XPU, NCHW, float32)", "(CPU, NCHW, float64)"]}
    monkeypatch.setattr(missing_kernels, "_kernels", lambda: listed)
    monkeypatch.setattr(missing_kernels, "_device", lambda: "xpu")
    assert "logsigmoid on xpu for float32 only" in str(lacked("logsigmoid", "bfloat16"))
    assert lacked("logsigmoid", "float32") == ""
