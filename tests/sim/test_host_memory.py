"""Pinned host memory and asynchronous offload are out of a plug-in's reach in Paddle 3.3.1.

Each test fails when a later release changes that: then use it, and remove what chapter 05 skips on simulated cards.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration
NEEDS_CUDA = "Cannot use CUDAPinnedPlace in CPU only version"


@pytest.fixture(scope="module")
def saw(seen):
    return seen("host_memory")


@pytest.fixture(scope="module")
def answers(saw):
    return saw[0]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        ("pin_memory", NEEDS_CUDA),
        ("pin_memory of a CPU tensor", NEEDS_CUDA),
        ("CUDAPinnedPlace", NEEDS_CUDA),
        ("XPUPinnedPlace", "Cannot use XPUPinnedPlace in CPU only version"),
        ("zeros(pin_memory=True)", "Pinning memory is not supported for Place(sim:0)"),
    ],
)
def test_paddle_refuses_pinned_memory_before_it_asks_the_plug_in(answers, attempt, message):
    assert message in answers[attempt]


def test_a_data_loader_gives_tensors_on_the_card(answers):
    assert answers["DataLoader with a buffer"] == "Place(sim:0)"


def test_paddle_never_asked_the_plug_in_for_host_memory(saw):
    assert saw[1] == 0


def test_this_wheel_has_no_asynchronous_loader(saw, answers):
    assert not saw[2]
    assert answers["create_async_load"] == "None"


def test_offload_is_a_copy_that_the_program_waits_for(answers):
    assert answers["async_offload"] == ["_NoopAsyncTask", "Place(cpu)", True]


@pytest.mark.parametrize("function", ["reload", "offload_with_offset"])
def test_what_needs_the_loader_raises(answers, function):
    assert answers[f"async_{function}"] == f"AttributeError: 'NoneType' object has no attribute '{function}'"


def test_the_reload_for_xpus_brings_a_tensor_of_the_second_card_to_the_first(answers):
    """When this fails, remove the known issue async-reload-to-the-first-card."""
    assert answers["async_reload on an XPU"] == ["Place(sim:1)", "Place(sim:0)"]
