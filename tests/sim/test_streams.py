"""Streams run their work on their own threads, in order, and every wait for a failed stream raises the reason."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def saw(seen):
    return seen("streams")


def test_a_call_returns_before_its_work_is_done(saw):
    assert saw["returns before the work is done"] == [False, False]


def test_another_stream_goes_on_meanwhile(saw):
    assert saw["another stream goes on"] == [True, True]


def test_a_stream_waits_for_an_event_of_another(saw):
    assert saw["a stream that waits for the event"] == [False, False]


def test_synchronize_waits(saw):
    assert saw["after synchronize"] == [True, True]


def test_streams_work_again_when_the_faults_are_gone(saw):
    assert saw["after that"][:2] == [True, True]
    assert saw["after the faults are gone"] == "nothing was raised"


def test_work_is_in_order_across_streams(saw):
    assert saw["wrong after waits for events"] == 0


def test_kernels_of_the_cpu_are_in_order_with_the_cards(saw):
    assert saw["wrong when the CPU takes part"] == 0


def test_a_copy_to_the_host_comes_after_all_that_was_asked_before(saw):
    assert saw["copy waits for all streams"]


@pytest.mark.parametrize("where", ["the stream", "the stream, again", "the event", "the device"])
def test_a_failure_comes_out_at(saw, where):
    assert "contiguous on card 0 failed: injected fault" in saw[f"failure at {where}"]


def test_short_work_starts_no_thread(saw):
    assert saw["threads for short work"] == 0
