"""Count the memory of a step: what autograd keeps, when, and what counts as on the device."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.memory.activation_memory import StepMemory, bytes_of, states_of

pytestmark = pytest.mark.unit

ROWS, WIDTH = 4, 8


@pytest.fixture
def layer():
    paddle.set_device("cpu")
    return paddle.nn.Linear(WIDTH, WIDTH)


@pytest.fixture
def optimizer(layer):
    return paddle.optimizer.AdamW(parameters=layer.parameters())


def square_of_the_output(layer):
    output = layer(paddle.ones([ROWS, WIDTH]))
    return (output * output).sum()


def test_a_tensor_that_is_saved_twice_counts_once(layer, optimizer):
    memory = StepMemory(layer, optimizer)
    with memory.saving():
        square_of_the_output(layer)
    assert memory.largest_activations() == 2 * ROWS * WIDTH * 4  # the input, and the output that is both factors


def test_a_saved_weight_does_not_count(layer, optimizer):
    memory = StepMemory(layer, optimizer)
    with memory.saving():
        layer(paddle.ones([ROWS, WIDTH]))
    assert memory.largest_activations() == ROWS * WIDTH * 4


def test_after_the_backward_pass_nothing_is_kept_and_gradients_are_there(layer, optimizer):
    memory = StepMemory(layer, optimizer)
    with memory.saving():
        square_of_the_output(layer).backward()
    memory.sample()
    assert memory.samples[-1].activations == 0
    assert memory.samples[-1].gradients == memory.samples[-1].weights == (WIDTH * WIDTH + WIDTH) * 4


def test_the_state_of_the_optimizer_appears_with_the_first_step(layer, optimizer):
    memory = StepMemory(layer, optimizer)
    square_of_the_output(layer).backward()
    optimizer.step()
    memory.sample()
    moments = 2 * memory.samples[-1].weights
    powers = 2 * 2 * 4  # of two betas for two parameters
    assert (memory.samples[0].optimizer, memory.samples[-1].optimizer) == (0, moments + powers)


def test_what_is_kept_in_another_form_is_not_on_the_device_and_comes_back(layer, optimizer):
    square_of_the_output(layer).backward()
    expected = layer.weight.grad.numpy()
    layer.clear_gradients()
    memory = StepMemory(layer, optimizer)
    with memory.saving(lambda tensor: [tensor.clone()], lambda kept: kept[0]):
        loss = square_of_the_output(layer)
        memory.sample()
        loss.backward()
    assert memory.samples[-1].activations <= ROWS * WIDTH * 4
    assert np.array_equal(layer.weight.grad.numpy(), expected)


def test_the_peak_is_the_largest_sum(layer, optimizer):
    memory = StepMemory(layer, optimizer)
    with memory.saving():
        square_of_the_output(layer).backward()
    assert memory.peak.total == max(each.total for each in memory.samples)


def test_only_tensors_have_bytes():
    assert bytes_of([paddle.ones([3], "bfloat16"), "on the host", None]) == 6


def test_the_states_of_an_optimizer_without_a_step_are_none(optimizer):
    assert states_of(optimizer) == []
