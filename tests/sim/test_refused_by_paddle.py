"""What Paddle 3.3.1 refuses a plug-in. One that fails: a release can do more, so remove what is skipped for it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def saw(seen):
    return seen("refused_by_paddle")


def test_paddle_refuses_pinned_memory(saw):
    assert "CUDAPinnedPlace" in saw["pin_memory"]


def test_this_wheel_has_no_asynchronous_loader(saw):
    assert saw["create_async_load"] == "None"


def test_paddle_refuses_a_second_gradient(saw):
    assert all("DistTensor doesn't support custom device" in error for error in saw["second gradient"])
