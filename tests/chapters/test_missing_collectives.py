"""What placed tensors need that a backend lacks: which reshard and which training is skipped on which device."""

from __future__ import annotations

import pytest

from xpulab.chapters.auto_parallel import cut_models, resharding


@pytest.mark.parametrize(
    ("pair", "call"),
    [
        (((4,), ("P",), ("S0",)), "reduce_scatter"),
        (((4,), ("S0",), ("S1",)), "all_to_all"),
        (((2, 2), ("R", "P"), ("S0", "S1")), "reduce_scatter"),
        (((2, 2), ("S0", "R"), ("S1", "R")), None),
        (((4,), ("P",), ("R",)), None),
        (((4,), ("S0",), ("R",)), None),
    ],
)
def test_a_reshard_is_skipped_only_where_its_collective_is_declared_as_missing(pair, call):
    found = resharding.lacking(pair, "cpu")
    assert (found and found.call) == call
    assert all(resharding.lacking(pair, device) is None for device in ("sim", "gpu", "xpu"))


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
