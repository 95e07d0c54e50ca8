"""Functions that are recomputed in the backward pass in many forms, and one step of each with and without recomputation."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.distributed.fleet.utils import recompute
from paddle.incubate.distributed.fleet import recompute_sequential

WIDTH, ROWS = 16, 24

Gradients = dict[str, np.ndarray]


class Block(paddle.nn.Layer):
    """Two linear layers with dropout between them. calls: how often its forward pass ran."""

    def __init__(self, rate: float = 0.25) -> None:
        super().__init__()
        self.up, self.down, self.rate = paddle.nn.Linear(WIDTH, 2 * WIDTH), paddle.nn.Linear(2 * WIDTH, WIDTH), rate
        self.calls = 0

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        self.calls += 1
        return self.down(F.dropout(F.gelu(self.up(x)), self.rate)) * scale


def _nested(block: Block, x: Any, run: Callable) -> Any:
    def both(y: Any) -> Any:
        return run(block, block(y))

    return run(both, x)


def _two_outputs(block: Block, x: Any, run: Callable) -> Any:
    def split(y: Any) -> tuple[Any, Any]:
        return block(y), block(y * 2.0)

    left, right = run(split, x)
    return left * 0.5 + right


def _randomness_of_the_host(block: Block, x: Any, run: Callable) -> Any:
    def layer_drop(y: Any) -> Any:
        return block(y) * random.random() + y * float(np.random.rand())

    return run(layer_drop, x)


def _mixed_precision(block: Block, x: Any, run: Callable) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "amp_guard can only be enabled")  # on the CPU it does nothing
        warnings.filterwarnings("ignore", "CustomPlace only support float16")  # nor on simulated cards
        with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
            return run(block, x).astype("float32")


FORMS: dict[str, Callable[[Block, Any, Callable], Any]] = {
    "dropout": lambda block, x, run: run(block, x),
    "an argument by keyword": lambda block, x, run: run(block, x, scale=0.5),
    "one layer twice": lambda block, x, run: run(block, run(block, x)),
    "nested": _nested,
    "two inputs in a tuple": lambda block, x, run: run(lambda pair: block(pair[0]) * pair[1], (x, x * 2.0)),
    "two outputs": _two_outputs,
    "random numbers of Python and numpy": _randomness_of_the_host,
    "auto_cast": _mixed_precision,
}
"""By name how a block is used; the third argument runs a function with recomputation, or without."""


@dataclass(frozen=True)
class Step:
    """gradients: by name, of the weights and of the input, and the loss. calls: of the block's forward pass."""

    gradients: Gradients
    calls: int


def at_once(function: Callable, *given: Any, **named: Any) -> Any:
    """Without recomputation."""
    return function(*given, **named)


def with_hooks(function: Callable, *given: Any, **named: Any) -> Any:
    """With Paddle's second implementation of recomputation, by hooks for saved tensors."""
    return recompute(function, *given, use_reentrant=False, **named)


def with_other_masks(function: Callable, *given: Any, **named: Any) -> Any:
    """As Paddle recomputes without preserve_rng_state: the second forward pass draws other random numbers."""
    return recompute(function, *given, preserve_rng_state=False, **named)


def step(form: str, run: Callable, seed: int) -> Step:
    """Loss and gradients of one step, all of which follow from the seed."""
    paddle.seed(seed)
    random.seed(seed)
    block, x = Block(), paddle.randn([ROWS, WIDTH])
    x.stop_gradient = False
    with _numpy_seed(seed):
        loss = FORMS[form](block, x, run).square().mean()
        loss.backward()
    found = {name: _gradient(weight) for name, weight in block.named_parameters()}
    return Step({**found, "input": _gradient(x), "loss": loss.numpy()}, block.calls)


def _gradient(tensor: Any) -> np.ndarray:
    return tensor.grad.numpy().copy()


@contextlib.contextmanager
def _numpy_seed(seed: int) -> Any:
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


def frozen_step(frozen: str, run: Callable, seed: int) -> dict[str, np.ndarray | None]:
    """By name the gradients of a step, or None where there is none.

    frozen: "nothing"; "weight", a weight of the block; "argument", a parameter that is passed to the function; "inputs", all
    that is passed to the function, as behind a frozen embedding.
    """
    paddle.seed(seed)
    block, x = Block(), paddle.randn([ROWS, WIDTH])
    x.stop_gradient = frozen == "inputs"
    scale = paddle.create_parameter([WIDTH], "float32", default_initializer=paddle.nn.initializer.Constant(0.5))
    if frozen == "weight":
        block.up.weight.stop_gradient = True
    if frozen in ("argument", "inputs"):
        scale.stop_gradient = True
    loss = run(block, x, scale).square().mean()
    if not loss.stop_gradient:
        loss.backward()
    tensors = {"up": block.up.weight, "down": block.down.weight, "scale": scale, "input": x}
    return {name: None if each.grad is None else each.grad.numpy().copy() for name, each in tensors.items()}


CHOICES: dict[str, dict[str, Any]] = {
    "full": {"recompute_granularity": "full"},
    "full, not the first two layers": {"recompute_granularity": "full", "no_recompute_layers": [0, 1]},
    "full_attn": {"recompute_granularity": "full_attn"},
    "core_attn": {"recompute_granularity": "core_attn"},
    "nothing": {"recompute_granularity": "full", "no_recompute_layers": [0, 1, 2, 3]},
}
"""By name what a model of PaddleNLP with four layers computes again: options of its configuration."""


def gradients_of_layers(run: Callable, seed: int, rows: int = 8) -> list[np.ndarray]:
    """Gradients of four layers and of their input; run(layers, x): their forward pass."""
    paddle.seed(seed)
    layers = paddle.nn.Sequential(*[Block() for _ in range(4)])
    x = paddle.randn([rows, WIDTH])
    x.stop_gradient = False
    run(layers, x).square().mean().backward()
    return [_gradient(x), *map(_gradient, layers.parameters())]


def in_segments(layers: Any, x: Any, segments: int = 2) -> Any:
    """The layers recomputed by recompute_sequential."""
    return recompute_sequential({"segments": segments}, layers, x)


def with_inputs_on_the_host(layers: Any, x: Any) -> Any:
    """Each layer recomputed, its input kept on the host."""
    for layer in layers:
        x = recompute(layer, x + 0.0, offload_indices=[0])
    return x


def mean_of_batch_norm(run: Callable, seed: int) -> tuple[float, float]:
    """The running mean of a batch norm after one step, and the mean of the batch; it starts at 0 and has momentum 0.5."""
    paddle.seed(seed)
    norm, x = paddle.nn.BatchNorm1D(1, momentum=0.5), paddle.randn([ROWS, 1]) + 3.0
    x.stop_gradient = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "When training, we now always track")
        run(norm, x).sum().backward()
    return float(norm._mean), float(x.mean())
