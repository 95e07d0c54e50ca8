"""What placed tensors need that a backend lacks: which training is skipped on which device."""

from __future__ import annotations

import pytest

from xpulab.chapters.auto_parallel import cut_models


@pytest.mark.parametrize(
    ("device", "variant", "call"),
    [
        ("cpu", dict(stage=3), "reduce_scatter"),
        ("cpu", dict(stage=1, by_samples=True), "reduce_scatter"),
        ("cpu", dict(stage=2), None),
        ("cpu", dict(stage=1, micro_batches=2), None),
        ("sim", dict(stage=0, micro_batches=2), "backward"),
        ("sim", dict(stage=3), None),
        ("sim", dict(stage=3, micro_batches=2), "backward"),
        ("xpu", dict(stage=3), None),
    ],
)
def test_a_training_is_skipped_only_where_what_it_needs_is_declared_as_missing(device, variant, call):
    found = cut_models.lacking(device, **variant)
    assert (found and found.call) == call
