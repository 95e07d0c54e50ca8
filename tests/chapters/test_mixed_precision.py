"""A known defect of mixed precision on the CPU: SGD ignores its master weights."""

from __future__ import annotations

from xpulab.chapters.numerics import mixed_precision
from xpulab.checks.table import Table


def test_the_sgd_of_the_cpu_does_not_use_master_weights():
    table = Table("amp.table")
    mixed_precision.master_weight_row(table, "SGD", "bfloat16")
    mixed_precision.master_weight_row(table, "AdamW", "bfloat16")
    assert [row.outcome for row in table.record("means", 0.0).rows] == ["failed", "skipped"]
