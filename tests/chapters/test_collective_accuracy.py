"""The environment in which an algorithm is tried."""

from __future__ import annotations

import os

import pytest

from xpulab.chapters.collectives import collective_accuracy as accuracy


@pytest.mark.parametrize(("device", "variable"), [("gpu", "NCCL_ALGO"), ("xpu", "BKCL_RDMA_FORCE_TREE")])
def test_each_algorithm_has_its_variables(device, variable):
    choices = accuracy.algorithms(device)
    assert any(variable in variables for variables in choices.values())


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_no_choice_has_a_reason(device):
    assert accuracy.algorithms(device) == {} and accuracy.NO_CHOICE[device]


def test_variables_are_set_inside_the_block_only(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    with accuracy.variables_set({"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}):
        assert (os.environ["NCCL_ALGO"], os.environ["NCCL_PROTO"]) == ("Tree", "LL")
    assert os.environ["NCCL_ALGO"] == "Ring" and "NCCL_PROTO" not in os.environ
