"""Llamas of several sizes, and the bytes that their training needs: measured, to compare with the formula of chapter 09.

Memory with half weights and float32 master weights is measured without a step, because the CPU and simulated cards have no
kernels for one. Nothing here has been run on a GPU or XPU yet.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import paddle
from paddlenlp.transformers import LlamaForCausalLM

from xpulab.chapters.memory.activation_memory import StepMemory, bytes_of, states_of
from xpulab.chapters.shared.allocated_memory import llama_config
from xpulab.reference import cost

SIZES = (
    (cost.Model(2, 96, 176, 8, 8, 64), 40, 3),
    (cost.Model(6, 64, 96, 4, 2, 256), 32, 4),
    (cost.Model(1, 128, 352, 2, 2, 512), 96, 1),
)
"""Layers, hidden and intermediate size, heads, heads of keys, vocabulary; the length of a sequence; the batch."""

LENGTH = 8
"""Of a sequence, where no batch is computed."""


def _new(model: cost.Model, length: int) -> tuple[Any, Any]:
    """A Llama of this size, and its optimizer."""
    network = LlamaForCausalLM(llama_config(model, length, recompute_use_reentrant=True))
    network.train()
    return network, paddle.optimizer.AdamW(1e-3, parameters=network.parameters(), multi_precision=True)


def _loss(network: Any, model: cost.Model, length: int, batch: int) -> Any:
    rows = paddle.randint(0, model.vocabulary, [batch, length])
    return network(rows, labels=rows)[0]


def activations_of(model: cost.Model, length: int, batch: int) -> int:
    """The most bytes that autograd keeps in a step."""
    network, optimizer = _new(model, length)
    return _kept(network, optimizer, model, length, batch)


def recomputed_activations_of(model: cost.Model, length: int, batch: int) -> int:
    """The same with every layer recomputed."""
    network, optimizer = _new(model, length)
    network.recompute_enable()
    return _kept(network, optimizer, model, length, batch)


def _kept(network: Any, optimizer: Any, model: cost.Model, length: int, batch: int) -> int:
    memory = StepMemory(network, optimizer)
    with memory.saving():
        _loss(network, model, length, batch).backward()
    return memory.largest_activations()


def formula_of(model: cost.Model, length: int, batch: int, **options: Any) -> cost.Memory:
    """What the formula of chapter 09 says for plain operators on one card. options: of cost.Training."""
    training = cost.Training(length, batch, batch, 0, stored=cost.PLAIN, **{"precision": cost.FLOAT32, **options})
    return cost.memory(model, training, cost.Degrees())


def counted_by_hooks(model: cost.Model, length: int, batch: int) -> tuple[int, int]:
    """Bytes that a forward pass leaves allocated on the device, and the bytes that the hooks have counted."""
    network, optimizer = _new(model, length)
    memory = StepMemory(network, optimizer)
    left = _left_by_forward(network, memory.saving(), model, length, batch)
    return left, memory.largest_activations()


def allocated_by_forward(model: cost.Model, length: int, batch: int, hooks: Any = None) -> int:
    """Bytes that a forward pass leaves allocated on the device. hooks: for saved tensors, a context, or None."""
    return _left_by_forward(_new(model, length)[0], hooks or nullcontext(), model, length, batch)


def _left_by_forward(network: Any, hooks: Any, model: cost.Model, length: int, batch: int) -> int:
    before = paddle.device.memory_allocated(paddle.get_device())
    with hooks:
        loss = _loss(network, model, length, batch)  # what autograd keeps exists as long as the loss
    left = paddle.device.memory_allocated(paddle.get_device()) - before
    del loss
    return left


def bytes_with_master_weights(model: cost.Model, dtype: str) -> cost.Memory:
    """Weights and gradients of this type, and the state of AdamW with master weights; activations are not measured: 0."""
    network, optimizer = _new(model, LENGTH)
    network.to(dtype=dtype)
    weights = network.parameters()
    block = paddle.static.default_main_program().global_block()
    optimizer._create_accumulators(block, weights)  # what the first step begins with
    for weight in weights:
        weight.sum().backward()
    gradients = bytes_of(weight.grad for weight in weights)
    return cost.Memory(bytes_of(weights), gradients, bytes_of(states_of(optimizer)), 0)
