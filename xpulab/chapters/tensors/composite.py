"""Composite operators: which operators a program contains, whole or decomposed into basic ones, and what it computes.

Source: paddle.decomposition.decompose, and the switches of `prim` in paddle.base.core.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

core: Any = paddle.base.core
"""Its switches of `prim` are not declared for type checkers."""

Function = Callable[[paddle.Tensor], paddle.Tensor]


@dataclass(frozen=True)
class Composite:
    """A function of one tensor of shape [4, 6], and the operator that its program contains.

    function: takes and returns a tensor. operator: the operator's name in a program, without "pd_op.".
    """

    function: Function
    operator: str


COMPOSITES = {
    "softmax": Composite(lambda x: F.softmax(x), "softmax"),
    "log_softmax": Composite(lambda x: F.log_softmax(x), "log_softmax"),
    "gelu": Composite(lambda x: F.gelu(x), "gelu"),
    "silu": Composite(lambda x: F.silu(x), "silu"),
    "swiglu": Composite(lambda x: F.swiglu(x), "swiglu"),
    "layer_norm": Composite(lambda x: F.layer_norm(x, [6]), "layer_norm"),
    "group_norm": Composite(
        lambda x: F.group_norm(x.reshape([2, 4, 3]), 2, weight=paddle.ones([4]), bias=paddle.zeros([4])).reshape([4, 6]),
        "group_norm",
    ),
    "mean": Composite(lambda x: paddle.mean(x, -1), "mean"),
    "relu": Composite(lambda x: F.relu(x), "relu"),
    "relu6": Composite(lambda x: F.relu6(x), "relu6"),
    "leaky_relu": Composite(lambda x: F.leaky_relu(x), "leaky_relu"),
    "elu": Composite(lambda x: F.elu(x), "elu"),
    "hardswish": Composite(lambda x: F.hardswish(x), "hardswish"),
    "softsign": Composite(lambda x: F.softsign(x), "softsign"),
    "stack": Composite(lambda x: paddle.stack([x, 2 * x]), "stack"),
    "addmm": Composite(lambda x: paddle.addmm(paddle.ones([4, 4]), x, x.t()), "addmm"),
    "huber loss": Composite(lambda x: F.smooth_l1_loss(x, paddle.zeros([4, 6]), reduction="none"), "huber_loss"),
    "index_sample": Composite(lambda x: paddle.index_sample(x, paddle.zeros([4, 2], "int64")), "index_sample"),
}
"""Composite operators that models of this book use, and some whose rule is easy to get wrong."""


def operators(function: Function, shape: Sequence[int], decomposed: bool, kept: Sequence[str] = ()) -> list[str]:
    """The names of the operators in the program of the function, in order, without "pd_op.".

    decomposed: replace composite operators by basic ones. kept: names of operators that stay.
    """
    with _programs(), prim(decomposed, kept):
        program, _, _ = _program(function, shape, decomposed)
        return [operator.name().removeprefix("pd_op.") for operator in program.global_block().ops]


def eager(function: Function, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The function of x, and the gradient of its weighted sum with respect to x, operator by operator.

    The weight of element i is cos(i): with equal weights the gradients of normalizations are 0.
    """
    tensor = paddle.to_tensor(x, stop_gradient=False)
    result = function(tensor)
    _weighted_sum(result).backward()
    slope: Any = tensor.grad
    return result.numpy(), slope.numpy()


def in_a_program(function: Function, x: np.ndarray, decomposed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The same two arrays from a program, which holds composite operators or, decomposed, basic ones, in its gradient too."""
    with _programs(), prim(decomposed):
        program, given, result = _program(function, x.shape, decomposed)
        with paddle.static.program_guard(program):
            (gradient,) = paddle.static.gradients(_weighted_sum(result), given)
        value, slope = paddle.static.Executor().run(program, feed={"x": x}, fetch_list=[result, gradient])
    return value, slope


@contextmanager
def prim(decomposed: bool, kept: Sequence[str] = ()) -> Iterator[None]:
    """Inside the block programs are made of basic operators, but for the `kept` ones; afterwards of composite ones again."""
    before = set(core.prim_config["forward_blacklist"])
    core._set_prim_all_enabled(decomposed)
    core._set_prim_forward_blacklist(*(f"pd_op.{name}" for name in kept))
    try:
        yield
    finally:
        core._set_prim_all_enabled(False)
        core.prim_config["forward_blacklist"] = before  # Paddle has a function that adds to it, and none that removes


@contextmanager
def _programs() -> Iterator[None]:
    """Inside the block functions make programs; afterwards tensors are on the same device as before.

    Leaving Paddle's IrGuard makes the CPU the device of a process that computes on a custom device.
    """
    device = paddle.get_device()
    try:
        with paddle.pir_utils.IrGuard(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Tensor do not have 'place' interface")
            paddle.set_device(device)
            yield
    finally:
        paddle.set_device(device)


def _program(function: Function, shape: Sequence[int], decomposed: bool) -> tuple[Any, Any, Any]:
    """The program, its input "x" and its result."""
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()):
        given = paddle.static.data("x", list(shape), "float32")
        given.stop_gradient = False
        result = function(given)
        if decomposed:
            (result,) = paddle.decomposition.decompose(program, [result])
    return program, given, result


def _weighted_sum(result: Any) -> Any:
    weights = np.cos(np.arange(np.prod(result.shape), dtype="float32")).reshape(result.shape)
    return (result * paddle.assign(weights)).sum()
