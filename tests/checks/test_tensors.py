"""Comparisons of paddle tensors, and the devices that they are on: the one module here that imports paddle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xpulab.checks import check, compare
from xpulab.errors import InputError
from xpulab.records.record import CardFacts, RunContext

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


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("comparison", [compare.equal, compare.bitwise])
def test_a_tensor_differs_from_another_in_every_type(comparison, dtype):
    finding = comparison(tensor([1.0, 0.0], dtype), tensor([1.0, 1.0], dtype))
    assert (finding.accepted, finding.incomparable) == (False, False)


def test_a_tensor_equals_a_list():
    assert compare.equal(tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]]).accepted


def test_a_list_equals_a_tensor():
    assert compare.equal([1, 2], tensor([1, 2], "int64")).accepted


def test_a_list_of_tensors_equals_a_tensor():
    assert compare.equal([tensor(1.0), tensor(2.0)], tensor([1.0, 2.0])).accepted


def test_a_tensor_differs_from_a_list_in_one_element():
    assert not compare.equal(tensor([1, 2]), [1, 3]).accepted


def test_a_tensor_equals_an_array_of_another_type():
    assert compare.equal(tensor([1.5], "bfloat16"), np.array([1.5])).accepted


def test_a_0d_tensor_equals_a_number():
    assert compare.equal(tensor(4096.0, "bfloat16"), 4096).accepted


def test_a_0d_tensor_differs_from_a_tensor_of_one_element():
    assert compare.equal(tensor(1.0), tensor([1.0])).incomparable


def test_integer_tensors_are_compared_exactly():
    assert not compare.equal(paddle.to_tensor([2**53 + 1]), [2**53]).accepted


def test_a_tensor_without_elements_is_incomparable():
    assert compare.equal(paddle.zeros([0, 3]), paddle.zeros([0, 3])).incomparable


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_nan_and_infinity_in_a_tensor_never_pass(number, dtype):
    value = tensor([1.0, number], dtype)
    findings = [compare.equal(value, value), compare.bitwise(value, value), compare.close(value, value, 0.1, 0)]
    assert not any(finding.accepted for finding in [*findings, compare.below(value, 9.0), compare.finite(value)])


@pytest.mark.parametrize("value", [None, "abc", {}, {"a": 1.0}, [], ["a", "b"]], ids=repr)
def test_other_values_are_incomparable_with_a_tensor(value):
    finding = compare.equal(value, tensor([1.0, 2.0]))
    assert (finding.accepted, finding.incomparable) == (False, True)


def test_tensors_in_dicts_are_compared_bit_by_bit():
    assert not compare.bitwise({"w": tensor([0.0])}, {"w": tensor([-0.0])}).accepted


def test_a_tensor_and_its_array_have_the_same_bits():
    assert compare.bitwise(tensor([1.0]), np.ones(1, np.float32)).accepted


def test_an_array_and_its_tensor_have_the_same_bits():
    assert compare.bitwise(np.ones(1, np.float32), tensor([1.0])).accepted


def test_bitwise_distinguishes_bfloat16_and_float32():
    assert compare.bitwise(tensor([1.0], "bfloat16"), tensor([1.0])).incomparable


def test_bitwise_distinguishes_two_kinds_of_float8():
    zeros = tensor([0.0])
    assert compare.bitwise(zeros.astype("float8_e4m3fn"), zeros.astype("float8_e5m2")).incomparable


def test_close_reads_bfloat16_as_numbers():
    assert compare.close(tensor([1.0, 3.0], "bfloat16"), [1.0, 3.01], 0.02, 0).accepted


def test_close_does_not_broadcast_a_tensor():
    assert compare.close(tensor([1.0]), tensor([1.0, 1.0]), 0.1, 0).incomparable


@pytest.mark.parametrize("value", [tensor(0.5), tensor([0.5, 0.9], "bfloat16")], ids=["0-d", "bfloat16"])
def test_below_reads_tensors(value):
    assert compare.below(value, 1.0).accepted


def test_true_accepts_a_tensor_of_one_truth_value():
    assert compare.true(paddle.to_tensor([True]).all()).accepted


def test_true_finds_a_tensor_of_a_number_incomparable():
    assert compare.true(tensor(1.0)).incomparable


def test_a_tensor_is_not_called_like_a_function(shown):
    check.equal("a.b", tensor([1.0]), tensor([1.0]), control=tensor([2.0]))
    assert shown.record.outcome == "passed"


def test_a_bound_may_be_a_0d_tensor(shown):
    check.below("a.b", tensor(0.1), tensor(0.2), control=tensor(0.3))
    assert shown.record.outcome == "passed"


# ------------------------------------------------------------------------------------------------------------- devices


def test_use_device_displays_the_run_context(shown):
    from xpulab.chapters.shared.device import use_device
    from xpulab.records.record import run_context_in

    use_device("cpu")
    run_context = run_context_in(shown.outputs[-1][1])
    assert (run_context.device, run_context.cards) == ("cpu", 1)


def test_use_device_sets_the_device_of_the_ledger(shown):
    from xpulab.chapters.shared import device

    check.ledger.run_context = RunContext("another", 1)
    device.use_device("cpu")
    assert check.ledger.device == "cpu"


@pytest.mark.parametrize(("name", "tool"), [("gpu", "read_nvidia_smi"), ("xpu", "read_xpu_smi")])
def test_a_card_is_described_by_model_and_driver(monkeypatch, name, tool):
    from xpulab.chapters.shared import device
    from xpulab.doctor.cards import Card, Reading

    cards = (Card(0, "P800 OAM"), Card(1, "P800 OAM"))
    monkeypatch.setattr(device, tool, lambda: Reading("smi", ("smi",), "ok", "two cards", driver="5.0.21", cards=cards))
    driver, facts = device._cards(device.Device(name, 2, f"{name}:0"))
    assert driver == {"card": "P800 OAM", "driver": "5.0.21"}
    assert facts == (CardFacts(0, "P800 OAM"), CardFacts(1, "P800 OAM"))


def test_a_card_without_a_vendor_tool_is_unknown(monkeypatch):
    from xpulab.chapters.shared import device
    from xpulab.doctor.cards import Reading

    monkeypatch.setattr(device, "read_xpu_smi", lambda: Reading("xpu-smi", (), "missing", "not on PATH"))
    assert device._cards(device.Device("xpu", 1, "xpu:0")) == ({"card": "unknown, xpu-smi: missing", "driver": "unknown"}, ())


def test_simulated_cards_have_their_memory_and_no_driver(monkeypatch):
    from xpulab.chapters.shared import device

    monkeypatch.setenv("XPULAB_SIM_MEMORY", str(2**30))
    facts = tuple(CardFacts(index, "simulated", memory_total_mib=1024) for index in range(2))
    assert device._cards(device.Device("sim", 2, "sim:0")) == ({}, facts)


def test_a_device_that_does_not_exist_is_refused():
    from xpulab.chapters.shared.device import use_device

    with pytest.raises(InputError, match="no device 'tpu': choose auto, xpu, gpu, cpu, sim"):
        use_device("tpu")


@pytest.mark.skipif(paddle.is_compiled_with_xpu(), reason="this Paddle was built for xpu")
def test_a_device_that_paddle_was_not_built_for_is_refused():
    from xpulab.chapters.shared.device import use_device

    with pytest.raises(InputError, match="Paddle sees no xpu here"):
        use_device("xpu")


def test_places_lists_each_kind_of_device_once():
    from xpulab.chapters.shared.device import places

    assert places({"a": tensor([1.0]), "b": tensor([2.0])}) == ["cpu"]


def test_places_of_arrays_without_a_device_cannot_pass_a_check():
    from xpulab.chapters.shared.device import places

    assert not compare.equal(places([np.ones(2)]), ["cpu"]).accepted


def test_no_fallback_changes_the_flag_inside_the_block_only():
    from xpulab.chapters.shared.device import no_fallback

    flag = "FLAGS_enable_api_kernel_fallback"
    before = paddle.get_flags(flag)
    with no_fallback():
        inside = paddle.get_flags(flag)
    assert (inside, paddle.get_flags(flag)) == ({flag: False}, before)


def test_no_fallback_restores_the_flag_when_the_block_raises():
    from xpulab.chapters.shared.device import no_fallback

    flag = "FLAGS_enable_api_kernel_fallback"
    before = paddle.get_flags(flag)
    with pytest.raises(RuntimeError), no_fallback():
        raise RuntimeError
    assert paddle.get_flags(flag) == before
