"""Functions that are recomputed in the backward pass in many forms, and one step of each with and without recomputation."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.distributed.fleet.utils import recompute

WIDTH, ROWS = 16, 24

Gradients = dict[str, np.ndarray]
"""By name the gradient of each tensor that has one, and the loss."""


class Block(paddle.nn.Layer):
    """Two linear layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = paddle.nn.Linear(WIDTH, 2 * WIDTH), paddle.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        return self.down(F.dropout(F.gelu(self.up(x)), 0.25)) * scale


FORMS: dict[str, Callable[[Block, Any, Callable], Any]] = {
    "dropout": lambda block, x, run: run(block, x),
    "an argument by keyword": lambda block, x, run: run(block, x, scale=0.5),
    "one layer twice": lambda block, x, run: run(block, run(block, x)),
    "two inputs in a tuple": lambda block, x, run: run(lambda pair: block(pair[0]) * pair[1], (x, x * 2.0)),
    "a random number of Python": lambda block, x, run: run(lambda y: block(y) * random.random(), x),
}
"""By name how a block is used; the third argument runs a function with recomputation, or without."""


def at_once(function: Callable, *given: Any, **named: Any) -> Any:
    """Without recomputation."""
    return function(*given, **named)


def with_hooks(function: Callable, *given: Any, **named: Any) -> Any:
    """With Paddle's second implementation of recomputation, by hooks for saved tensors."""
    return recompute(function, *given, use_reentrant=False, **named)


def with_other_masks(function: Callable, *given: Any, **named: Any) -> Any:
    """As Paddle recomputes without preserve_rng_state: the second forward pass draws other random numbers."""
    return recompute(function, *given, preserve_rng_state=False, **named)


def step(form: str, run: Callable, seed: int) -> Gradients:
    """Loss and gradients of one step, all of which follow from the seed."""
    paddle.seed(seed)
    random.seed(seed)
    block, x = Block(), paddle.randn([ROWS, WIDTH])
    x.stop_gradient = False
    loss = FORMS[form](block, x, run).square().mean()
    loss.backward()
    return {**_gradients({**dict(block.named_parameters()), "input": x}), "loss": loss.numpy()}


def frozen_step(frozen: str, run: Callable, seed: int) -> Gradients:
    """The gradients of a step; empty where nothing has one.

    frozen: "nothing"; "weight", a weight of the block; "argument", a parameter that is passed to the function; "inputs", all
    that is passed to the function, as behind a frozen embedding.
    """
    paddle.seed(seed)
    block, x = Block(), paddle.randn([ROWS, WIDTH])
    x.stop_gradient = frozen == "inputs"
    scale = paddle.create_parameter([WIDTH], "float32", default_initializer=paddle.nn.initializer.Constant(0.5))
    block.up.weight.stop_gradient = frozen == "weight"
    scale.stop_gradient = frozen in ("argument", "inputs")
    loss = run(block, x, scale).square().mean()
    if not loss.stop_gradient:
        loss.backward()
    return _gradients({"up": block.up.weight, "down": block.down.weight, "scale": scale, "input": x})


def _gradients(tensors: dict[str, Any]) -> Gradients:
    return {name: each.grad.numpy().copy() for name, each in tensors.items() if each.grad is not None}
