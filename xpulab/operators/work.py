"""How much an operator computes, in floating-point operations, from the shapes of its tensors: for shares of a step."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Shape = Sequence[int]

BACKWARD = 2
"""How many times the work of forward backward takes: a gradient for each of two factors."""

_PRODUCTS = ("matmul", "bmm", "mm", "linear", "fused_gemm_epilogue", "addmm", "mv")
_CONVOLUTIONS = ("conv2d", "conv3d", "depthwise_conv2d")
_ATTENTION = ("flash_attn", "memory_efficient_attention", "fused_dot_product_attention", "cudnn_flash_attn")
_HELD = ("builtin.", "pd_op.full", "pd_op.data", "pd_op.feed", "pd_op.fetch", "pd_op.shadow", "cf.")
"""How operators of a program begin that only hold something."""


@dataclass(frozen=True)
class Program:
    """A compiled program. operators: of forward and backward. work: theirs, in floating-point operations."""

    operators: int
    work: float


def work_of(name: str, taken: Sequence[Shape], made: Sequence[Shape]) -> float:
    """The work of an operator, or as "NAME_grad" of its gradient. taken, made: the shapes of its tensors, in order."""
    if name.endswith("_grad") and len(taken) > 2:
        return BACKWARD * work_of(name.removesuffix("_grad"), taken[:2], taken[2:])
    sizes = [math.prod(shape) for shape in (*taken, *made)]
    if len(taken) < 2 or not made or not all(sizes):
        return float(max(sizes, default=0))
    first, second, result = (math.prod(shape) for shape in (taken[0], taken[1], made[0]))
    if name in _PRODUCTS:
        batch = math.prod(taken[1][:-2]) if len(taken[0]) > 2 else 1
        return 2.0 * result * math.sqrt(first * second / (result * batch))
    if name in _CONVOLUTIONS:
        return 2.0 * result * second / taken[1][0]
    if name.removesuffix("_transpose") in _CONVOLUTIONS:
        return 2.0 * first * second / taken[1][0]
    if name in _ATTENTION:
        return 4.0 * first * taken[1][1]  # [batch, length, heads, width]
    if name == "rnn":
        return 2.0 * first / taken[0][-1] * sum(math.prod(shape) for shape in taken[1:] if len(shape) == 2)
    return float(max(sizes))


def running_program() -> Program | None:
    """The program that a caller of this function runs; None where no caller is known to run one."""
    from paddle.jit.dy2static.pir_partial_program import PartialProgramLayer

    frame: Any = sys._getframe(1)
    while frame:
        for value in frame.f_locals.values():
            if isinstance(value, PartialProgramLayer):
                operators = [
                    operator
                    for part in (value.program.forward_program, value.program.backward_program)
                    for operator in part.global_block().ops
                    if not operator.name().startswith(_HELD)
                ]
                return Program(len(operators), sum(_work(operator) for operator in operators))
        frame = frame.f_back
    return None


def _work(operator: Any) -> float:
    taken, made = (
        [[abs(size) for size in each.shape] for each in values if each.initialized() and each.is_dense_tensor_type()]
        for values in (operator.operands_source(), operator.results())
    )
    return work_of(operator.name().removeprefix("pd_op.").rstrip("_"), taken, made)
