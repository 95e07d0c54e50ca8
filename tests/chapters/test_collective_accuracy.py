"""The error of a sum over ranks, and the environment in which an algorithm is tried."""

from __future__ import annotations

import os

import numpy as np
import pytest

from xpulab.chapters.collectives import collective_accuracy as accuracy

EVERY = [accuracy.random_values("bfloat16", 70_001, rank) for rank in range(4)]


def bfloat16(values, cut=False):
    """To the nearest bfloat16, ties to even; or with digits cut off."""
    bits = values.astype("float32").view("uint32")
    rounded = bits if cut else bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view("float32")


def added(step):
    total = EVERY[0]
    for each in EVERY[1:]:
        total = step(total + each)
    return total


def test_rounded_sums_are_within_the_bound_and_have_no_bias():
    largest, control, bias = accuracy.errors(added(bfloat16), EVERY, "bfloat16")
    assert 0.3 < largest <= 1.001 < control
    assert abs(bias) < 0.02


def test_sums_with_digits_cut_off_have_a_bias():
    assert accuracy.errors(added(lambda total: bfloat16(total, cut=True)), EVERY, "bfloat16")[2] < -0.3


def test_sums_with_the_digits_of_another_type_are_outside_the_bound():
    every = [accuracy.random_values("float32", 5000, rank) for rank in range(2)]
    assert accuracy.errors(bfloat16(every[0] + every[1]), every, "float32")[0] > 100


@pytest.mark.parametrize("dtype", accuracy.UNIT)
def test_values_are_numbers_of_their_type(dtype):
    values = accuracy.random_values(dtype, 100, 0)
    assert (bfloat16(values) == values).all() if dtype == "bfloat16" else (values.astype(dtype) == values).all()


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
