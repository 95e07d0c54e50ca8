"""Operators in place leave a tensor where it is, also where the CPU computes them for a card."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def both(seen):
    return seen("in_place", "cpu"), seen("in_place", "sim", XPULAB_SIM_HALF="1")


@pytest.fixture(scope="module")
def cpu(both):
    return both[0]


@pytest.fixture(scope="module")
def sim(both):
    return both[1]


def test_each_operator_changes_the_buffer_as_on_the_cpu(cpu, sim):
    assert {name: sim["cases"][name] for name in cpu["cases"]} == cpu["cases"]


def test_each_operator_ran(cpu, sim):
    assert [name for saw in (cpu, sim) for name, case in saw["cases"].items() if isinstance(case, str)] == []


def test_many_operators_change_the_buffer_and_stay_there(sim):
    stayed = [name for name, case in sim["cases"].items() if case["changed"] and not case["moved"]]
    assert len(stayed) > 70
    assert {"add_", "scale_", "clip_", "zero_", "copy_", "assign", "set_value", "scatter_", "lerp_"} <= {*stayed}


def test_an_operator_that_is_not_in_place_leaves_the_buffer_as_it_was(cpu, sim):
    assert sim["cases"]["not in place"]["changed"] is False


def test_half_types_stay_too(sim):
    assert {name: (case["moved"], case["changed"]) for name, case in sim["half"].items()} == dict.fromkeys(
        sim["half"], (False, True)
    )


def test_optimizers_update_a_weight_in_a_buffer_and_their_state_where_they_are(cpu, sim):
    assert {name: sim["optimizers"][name] for name in cpu["optimizers"]} == cpu["optimizers"]
    assert {name for name, trained in sim["optimizers"].items() if trained["moved"] is not False} == set()
    states = {name: trained["states"] for name, trained in sim["optimizers"].items()}
    assert states["AdamW"] >= 2 and states["AdamW, bfloat16"] == states["AdamW"] + 1  # moments; the float32 copy of the weight


def test_backward_sees_that_a_value_was_changed(cpu, sim):
    for saw in (cpu, sim):
        assert "has been modified by an inplace operation" in saw["backward"]


def test_no_memory_is_kept(sim):
    assert sim["left"] == 0
