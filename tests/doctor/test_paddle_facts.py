"""Facts about Paddle are read correctly: a CPU build reports missing components as the string 'False'."""

from __future__ import annotations

import sys

import pytest

from xpulab.doctor.paddle_facts import PaddleFacts, paddle_facts


class Version:
    full_version = "3.3.0"

    def __init__(self, **stated: str) -> None:
        for name, value in stated.items():
            setattr(self, name, lambda value=value: value)


@pytest.fixture
def pretended(monkeypatch):
    """Puts a paddle of the given parts and number of XPUs in the place of the real one."""

    def put(xpu_cards: int, **stated: str) -> None:
        def cards(number):
            return type("Device", (), {"device_count": staticmethod(lambda: number)})

        paddle = type(sys)("paddle")
        paddle.version = Version(**stated)
        paddle.device = type("device", (), {"xpu": cards(xpu_cards), "cuda": cards(0)})
        paddle.is_compiled_with_xpu = lambda: xpu_cards > 0
        paddle.is_compiled_with_cuda = lambda: False
        monkeypatch.setitem(sys.modules, "paddle", paddle)

    return put


def test_false_as_a_string_is_absent(pretended):
    pretended(0, xpu="False", xpu_xre="False", xpu_xccl="False", xpu_xhpc="False", cuda="False")
    assert paddle_facts() == PaddleFacts(version="3.3.0", built_for="cpu")


def test_p800_build_states_its_runtime(pretended):
    pretended(8, xpu_xre="5.0.21.15", xpu_xccl="3.0.2.3", cuda="False")
    facts = paddle_facts()
    assert (facts.built_for, facts.xpu_cards) == ("xpu", 8)
    assert facts.components == {"xpu_xre": "5.0.21.15", "xpu_xccl": "3.0.2.3"}
