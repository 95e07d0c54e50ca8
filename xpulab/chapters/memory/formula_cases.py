"""Llamas of several sizes, and the bytes that their training needs: measured, to compare with the formula.

Memory with half weights and float32 master weights is measured without a step, because the CPU and simulated cards have no
kernels for one. Nothing here has been run on a GPU or XPU yet.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any

import paddle
import paddle.nn.functional as F
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.transformers import LlamaForCausalLM

from xpulab.chapters.memory.activation_memory import StepMemory, bytes_of, states_of
from xpulab.chapters.memory.offloading import Offloader
from xpulab.chapters.shared import configurations
from xpulab.chapters.shared.allocated_memory import llama_config
from xpulab.checks.table import Table
from xpulab.reference import cost

SIZES = (
    (cost.Model(2, 96, 176, 8, 8, 64), 40, 3),
    (cost.Model(6, 64, 96, 4, 2, 256), 32, 4),
    (cost.Model(1, 128, 352, 2, 2, 512), 96, 1),
)
"""Layers, hidden and intermediate size, heads, heads of keys, vocabulary; the length of a sequence; the batch."""

MODELS = {
    "Qwen2.5-0.5B": cost.Model(24, 896, 4864, heads=14, kv_heads=2, vocabulary=151936, qkv_bias=True, tied=True),
    **{name: configurations.MODELS[name] for name in ("Qwen2.5-7B", "Qwen2.5-72B")},
}
"""The sizes of real models, from their config.json; chapter 11 compares their number of parameters with the published one."""

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


def activations_of(model: cost.Model, length: int, batch: int, change: Callable[[Any], Any] = lambda network: None) -> int:
    """The most bytes that autograd keeps in a step. change: of the network, before the step."""
    network, optimizer = _new(model, length)
    change(network)
    memory = StepMemory(network, optimizer)
    with memory.saving():
        _loss(network, model, length, batch).backward()
    return memory.largest_activations()


recomputed_activations_of = partial(activations_of, change=lambda network: network.recompute_enable())
"""The same with every layer recomputed."""


def formula_of(model: cost.Model, length: int, batch: int, **options: Any) -> cost.Memory:
    """What the formula says for plain operators on one card. options: of cost.Training."""
    training = cost.Training(length, batch, batch, 0, stored=cost.PLAIN, **{"precision": cost.FLOAT32, **options})
    return cost.memory(model, training, cost.Degrees())


def rows_of_allocated(rows: Table) -> None:
    """Rows: a forward pass allocates what the hooks count, and almost nothing with activations on the host."""
    for model, length, batch in SIZES:
        case, (network, optimizer) = f"[{batch}, {length}], {model.layers} layers", _new(model, length)
        memory, mover = StepMemory(network, optimizer), Offloader()
        moving = paddle.autograd.saved_tensors_hooks(mover.to_host, mover.to_device)
        hooks = {"with hooks": memory.saving(), "without hooks": nullcontext(), "on the host": moving}
        left = {how: _left_by_forward(network, context, model, length, batch) for how, context in hooks.items()}
        largest = 4 * batch * length * max(model.intermediate, model.heads * length)
        counted = memory.largest_activations()
        for how in ("with hooks", "without hooks"):
            rows.close(f"{case}, {how}", left[how] / counted, 1.0, atol=0.01, control=1 - largest / counted)
        rows.below(f"{case}, on the host", left["on the host"] / counted, 0.01, control=left["without hooks"] / counted)


def _left_by_forward(network: Any, hooks: Any, model: cost.Model, length: int, batch: int) -> int:
    """Bytes that a forward pass leaves allocated on the device. hooks: for saved tensors, a context."""
    gc.collect()  # else a collection inside the forward pass frees what earlier cases have left
    before = paddle.device.memory_allocated(paddle.get_device())
    with hooks:
        loss = _loss(network, model, length, batch)  # what autograd keeps exists as long as the loss
    left = paddle.device.memory_allocated(paddle.get_device()) - before
    del loss
    return left


IN_PLACE = ("tanh", "sigmoid", "silu", "relu")
"""Functions whose backward kernel writes the gradient of the input over that of the result."""

NUMBERS, CALLS = 2**18, 4
"""Of a tensor, and of such a function one after the other."""


def rows_of_shared_buffers(rows: Table) -> None:
    """Rows: in the backward pass of a chain one buffer holds the gradient of each result, and then that of its input."""
    for name in IN_PLACE:
        buffers = peak_of_backward(getattr(F, name)) / (4 * NUMBERS)
        rows.close(f"backward pass of {CALLS} {name}, buffers", buffers, 1.0, atol=0.01, control=2.0)


def peak_of_backward(function: Callable[[Any], Any]) -> int:
    """The most bytes that the backward pass of CALLS calls allocates beside what the forward pass has left."""
    gc.collect()
    place, x = paddle.get_device(), paddle.linspace(-1, 1, NUMBERS)
    x.stop_gradient = False
    loss = reduce(lambda hidden, _: function(hidden), range(CALLS), x).sum()
    paddle.device.reset_max_memory_allocated(place)
    before = paddle.device.memory_allocated(place)
    loss.backward()
    return int(paddle.device.max_memory_allocated(place)) - before


def adapter_in_paddlenlp(model: cost.Model, rank: int) -> tuple[int, int]:
    """Trainable parameters of LoRA on all matrices of the layers, and the bytes of gradients after a backward pass."""
    matrices = [f".*{name}_proj.*" for name in ("q", "k", "v", "o", "gate", "up", "down")]
    network = LoRAModel(_new(model, LENGTH)[0], LoRAConfig(target_modules=matrices, r=rank, lora_alpha=rank))
    network.mark_only_lora_as_trainable()
    network.train()
    _loss(network, model, LENGTH, 1).backward()
    trainable = sum(int(weight.size) for weight in network.parameters() if not weight.stop_gradient)
    return trainable, bytes_of(weight.grad for weight in network.parameters())


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
