"""Comparisons of paddle tensors, and the devices that they are on: the one module here that imports paddle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xpulab.checks import compare
from xpulab.errors import InputError

paddle = pytest.importorskip("paddle")


def tensor(values, dtype="float32"):
    return paddle.to_tensor(values, dtype="float32").astype(dtype)


@pytest.fixture(autouse=True)
def _on_the_cpu():
    paddle.set_device("cpu")


TYPES = ["bool", "int8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("comparison", [compare.equal, compare.bitwise])
def test_a_tensor_equals_its_copy_in_every_type(comparison, dtype):
    value = tensor([1.0, 0.0], dtype)
    assert comparison(value, value.clone()).accepted


FINDINGS = {
    "a tensor equals a list": (lambda: compare.equal(tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]]), "accepted"),
    "a list of tensors equals a tensor": (lambda: compare.equal([tensor(1.0), tensor(2.0)], tensor([1.0, 2.0])), "accepted"),
    "an array of another type": (lambda: compare.equal(tensor([1.5], "bfloat16"), np.array([1.5])), "accepted"),
    "a 0-d tensor equals a number": (lambda: compare.equal(tensor(4096.0, "bfloat16"), 4096), "accepted"),
    "a tensor and its array have the same bits": (lambda: compare.bitwise(tensor([1.0]), np.ones(1, np.float32)), "accepted"),
    "close reads bfloat16": (lambda: compare.close(tensor([1.0, 3.0], "bfloat16"), [1.0, 3.01], 0.02, 0), "accepted"),
    "below reads bfloat16": (lambda: compare.below(tensor([0.5, 0.9], "bfloat16"), 1.0), "accepted"),
    "one element differs": (lambda: compare.equal(tensor([1, 2]), [1, 3]), "rejected"),
    "integers are compared exactly": (lambda: compare.equal(paddle.to_tensor([2**53 + 1]), [2**53]), "rejected"),
    "bits of tensors in dicts": (lambda: compare.bitwise({"w": tensor([0.0])}, {"w": tensor([-0.0])}), "rejected"),
    "0-d and one element": (lambda: compare.equal(tensor(1.0), tensor([1.0])), "incomparable"),
    "no elements": (lambda: compare.equal(paddle.zeros([0, 3]), paddle.zeros([0, 3])), "incomparable"),
    "bits of bfloat16 and float32": (lambda: compare.bitwise(tensor([1.0], "bfloat16"), tensor([1.0])), "incomparable"),
    "close does not broadcast": (lambda: compare.close(tensor([1.0]), tensor([1.0, 1.0]), 0.1, 0), "incomparable"),
}


@pytest.mark.parametrize(("find", "outcome"), FINDINGS.values(), ids=FINDINGS.keys())
def test_a_comparison_of_tensors(find, outcome):
    finding = find()
    assert (finding.accepted, finding.incomparable) == (outcome == "accepted", outcome == "incomparable")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_nan_and_infinity_in_a_tensor_never_pass(number, dtype):
    value = tensor([1.0, number], dtype)
    findings = [compare.equal(value, value), compare.bitwise(value, value), compare.close(value, value, 0.1, 0)]
    assert not any(finding.accepted for finding in [*findings, compare.below(value, 9.0), compare.finite(value)])


# ------------------------------------------------------------------------------------------------------------- devices


@pytest.mark.skipif(paddle.is_compiled_with_xpu(), reason="this Paddle was built for xpu")
def test_a_device_that_paddle_was_not_built_for_is_refused():
    from xpulab.chapters.shared.device import use_device

    with pytest.raises(InputError, match="Paddle sees no xpu here"):
        use_device("xpu")


def test_no_fallback_restores_the_flag_when_the_block_raises():
    from xpulab.chapters.shared.device import no_fallback

    flag = "FLAGS_enable_api_kernel_fallback"
    before = paddle.get_flags(flag)
    with pytest.raises(RuntimeError), no_fallback():
        raise RuntimeError
    assert paddle.get_flags(flag) == before
