"""Streams run their work on their own threads, in order, and every wait for a failed stream raises the reason."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def saw(seen):
    return seen("streams")


@pytest.mark.parametrize(
    ("what", "value"),
    {
        "returns before the work is done": [False, False],
        "another stream goes on": [True, True],
        "a stream that waits for the event": [False, False],
        "after synchronize": [True, True],
        "wrong after waits for events": 0,
        "wrong when the CPU takes part": 0,
        "wrong gradients after two passes": 0,
        "threads for short work": 0,
    }.items(),
)
def test_the_probe_saw(saw, what, value):
    assert saw[what] == value


def test_streams_work_again_when_the_faults_are_gone(saw):
    assert saw["after that"][:2] == [True, True]
    assert saw["after the faults are gone"] == "nothing was raised"


@pytest.mark.parametrize("where", ["the stream", "the stream, again", "the event", "the device"])
def test_a_failure_comes_out_at(saw, where):
    assert "contiguous on card 0 failed: injected fault" in saw[f"failure at {where}"]
