"""Gradients add up over backward passes, whichever kernel made them: Paddle adds them on the host and waits for nothing."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kernel", ["embedding", "slice", "transpose"])
def test_two_backward_passes_give_twice_the_gradient(saw, kernel):
    assert saw[kernel] == 0


@pytest.fixture(scope="module")
def saw(seen):
    return seen("accumulation")
