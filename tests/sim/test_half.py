"""Kernels for half types on simulated cards: float32 results that are rounded once, as numpy rounds them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration

TYPES = ("float16", "bfloat16")


@pytest.fixture(scope="module")
def saw(seen):
    return seen("half", XPULAB_SIM_HALF="1")


def test_every_kernel_was_added_to_this_wheel_and_every_case_ran(saw):
    assert saw["skipped"] == [] and saw["errors"] == {}
    assert len(saw["cases"]) > 100


def test_each_value_is_that_of_float32_rounded_to_nearest_even(saw):
    assert {name: case["value"] for name, case in saw["cases"].items() if case["value"]} == {}


def test_each_gradient_is_too_unless_it_is_computed_from_a_rounded_result(saw):
    assert {name: case["gradient"] for name, case in saw["cases"].items() if case["gradient"] > case["limit"]} == {}


@pytest.mark.parametrize("dtype", TYPES)
def test_results_have_the_half_type(saw, dtype):
    others = {"bool", "int64", *(("float32",) if dtype == "bfloat16" else ())}  # Paddle keeps softmax of bfloat16 longer
    for name, case in saw["cases"].items():
        if name.endswith(f", {dtype}"):
            assert {each.removeprefix("paddle.") for each in case["types"]} <= {dtype, *others}, name


def test_an_optimizer_moves_the_float32_copy_as_a_float32_weight_and_rounds_it(saw):
    assert len(saw["optimizers"]) == 2 * 4
    exact = {"copy": 0.0, "weight": 0.0, "alone": 0.0}
    assert {name: errors for name, errors in saw["optimizers"].items() if errors != exact} == {}


def test_a_kernel_that_does_not_fit_this_wheel_is_refused_with_the_reason(saw):
    assert saw["refused"]["relu"] == ""
    assert "other arguments" in saw["refused"]["matmul"]
    assert "no float32 kernel" in saw["refused"]["no_such"]
