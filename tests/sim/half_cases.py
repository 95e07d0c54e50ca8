"""Calls that together reach every kernel for half types. By name: the function, and the shapes or arrays of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import _C_ops

UNARY = (
    *(
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "cos",
        "cosh",
        "erf",
        "erfinv",
        "exp",
        "expm1",
        "lgamma",
        "log",
    ),
    *(
        "log10",
        "log1p",
        "log2",
        "reciprocal",
        "round",
        "rsqrt",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "trunc",
    ),
)
ACTIVATIONS = (
    *("celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "mish", "relu"),
    *("relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "swish", "tanhshrink", "thresholded_relu"),
)
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "remainder", "atan2", "pow"]
RANGES = {
    "acos": (-0.9, 0.9),
    "acosh": (1.5, 4.0),
    "asin": (-0.9, 0.9),
    "atanh": (-0.9, 0.9),
    "erfinv": (-0.9, 0.9),
    "log1p": (-0.5, 4.0),
    "logit": (0.1, 0.9),
    "bce": (0.1, 0.9),
    **dict.fromkeys(("lgamma", "log", "log10", "log2", "rsqrt", "sqrt", "pow", "pow to a number", "kl divergence"), (0.5, 4.0)),
}
"""By case the range of the numbers; others are normal."""


@dataclass(frozen=True)
class Case:
    """function: of float tensors of these shapes. grad: how many of them have gradients, the first ones."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 4),)
    grads: int = 1


MANY = paddle.arange(400) % 4
INDEX = paddle.to_tensor([2, 0, 2])
MASK = paddle.to_tensor([[True, False, True, True]])


def _normed(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, 4, weight, bias)


def _batch_normed(x: Any) -> Any:
    mean, variance, weight, bias = paddle.zeros([2]), paddle.ones([2]), paddle.ones([2]), paddle.zeros([2])
    return F.batch_norm(x, mean, variance, weight, bias, training=True)


def _unscaled(x: Any) -> Any:
    """What check_finite_and_unscale and update_loss_scaling make of the tensor."""
    values = (x * 1.0).detach()
    _C_ops.check_finite_and_unscale_([values], paddle.to_tensor([8.0]))
    infinite = paddle.to_tensor([True]).cpu()  # where the kernel for the CPU wants it
    counts = [paddle.zeros([1], "int32") for _ in range(2)]
    zeroed = (x * 1.0).detach()
    _C_ops.update_loss_scaling_([zeroed], infinite, paddle.to_tensor([8.0]), *counts, 2, 1, 2.0, 0.5, False)
    return [values, zeroed]


SQUARE, CUBE, IMAGE = (4, 4), (2, 3, 4), (2, 2, 6, 6)
CASES = {
    **{name: Case(getattr(paddle, name)) for name in UNARY},
    **{name: Case(getattr(F, name)) for name in ACTIVATIONS},
    **{name: Case(getattr(paddle, name), ((3, 4), (3, 4)), 2) for name in BINARY},
    "add, broadcast": Case(paddle.add, ((2, 3, 4), (4,)), 2),
    "multiply, broadcast": Case(paddle.multiply, ((3, 1), (1, 4)), 2),
    "divide, broadcast": Case(paddle.divide, ((3, 4), (4,)), 2),
    "add, a number": Case(lambda x: x + 1.5),
    "logit": Case(paddle.logit),
    "stanh": Case(paddle.stanh),
    "clip": Case(lambda x: paddle.clip(x, -0.5, 0.7)),
    "pow to a number": Case(lambda x: x**3.0),
    "swiglu": Case(F.swiglu, ((3, 4), (3, 4)), 2),
    "swiglu, one": Case(F.swiglu, ((3, 8),)),
    "where": Case(lambda x, y: paddle.where(MASK, x, y), ((3, 4), (3, 4)), 2),
    "isclose": Case(lambda x, y: paddle.isclose(x, y, rtol=0.5), ((3, 4), (3, 4)), 0),
    "allclose": Case(lambda x, y: paddle.allclose(x, y, rtol=0.5), ((3, 4), (3, 4)), 0),
    "logical": Case(
        lambda x, y: [paddle.logical_and(x, y), paddle.logical_or(x, y), paddle.logical_xor(x, y), paddle.logical_not(x)],
        ((3, 4), (3, 4)),
        0,
    ),
    # arrays
    "gather_nd": Case(lambda x: paddle.gather_nd(x, paddle.to_tensor([[0, 1], [2, 3]])), ((3, 4),)),
    "index_sample": Case(lambda x: paddle.index_sample(x, paddle.to_tensor([[0, 1], [3, 3], [1, 0]])), ((3, 4),)),
    "x[index]": Case(lambda x: x[MANY], ((5, 6),)),
    "x[1:][:, index]": Case(lambda x: x[1:][:, INDEX], ((5, 6),)),
    "index_put": Case(lambda x, y: paddle.index_put(x, (MANY,), y, accumulate=True), ((5, 6), (400, 6)), 0),
    "kron": Case(paddle.kron, ((2, 3), (3, 2)), 2),
    "tril": Case(paddle.tril, (SQUARE,)),
    "triu": Case(paddle.triu, (SQUARE,)),
    "scatter_nd_add": Case(lambda x, y: paddle.scatter_nd_add(x, paddle.to_tensor([[0], [2], [0]]), y), ((3, 4), (3, 4)), 2),
    "index_add": Case(lambda x, y: paddle.index_add(x, INDEX, 0, y), ((3, 4), (3, 4)), 2),
    "index_select": Case(lambda x: paddle.index_select(x, INDEX, 1)),
    "take_along_axis": Case(lambda x: paddle.take_along_axis(x, paddle.to_tensor([[0, 1, 1, 2]]), 0, broadcast=False)),
    "put_along_axis": Case(
        lambda x, y: paddle.put_along_axis(x, paddle.to_tensor([[0, 1, 1, 2]]), y, 0, "add", True, False), ((3, 4), (1, 4)), 2
    ),
    "diag": Case(paddle.diag, ((4,),)),
    "diag_embed": Case(paddle.diag_embed, grads=0),
    "diagonal": Case(paddle.diagonal, (SQUARE,)),
    "trace": Case(paddle.trace, (SQUARE,)),
    "tile": Case(lambda x: paddle.tile(x, [2, 3])),
    "unsqueeze": Case(lambda x: paddle.unsqueeze(x, 1)),
    "pad": Case(lambda x: F.pad(x, [1, 2, 0, 1], value=0.5)),
    "argmax": Case(lambda x: paddle.argmax(x, axis=1), grads=0),
    "argmin": Case(lambda x: paddle.argmin(x, axis=1), grads=0),
    "fill_diagonal": Case(lambda x: _C_ops.fill_diagonal(x, 2.5, 0, False), (SQUARE,)),
    "gather": Case(lambda x: paddle.gather(x, INDEX, 0)),
    "topk": Case(lambda x: paddle.topk(x, 2)[0]),
    "scatter": Case(lambda x, y: paddle.scatter(x, paddle.to_tensor([2, 0]), y), ((3, 4), (2, 4)), 2),
    "roll": Case(lambda x: paddle.roll(x, 1, 0)),
    "slice with a step": Case(lambda x: x[:, ::2]),
    "expand_as": Case(lambda x, y: paddle.expand_as(x, y), ((1, 4), (3, 4))),
    "repeat_interleave": Case(lambda x: paddle.repeat_interleave(x, 2, 0)),
    "flip": Case(lambda x: paddle.flip(x, [0])),
    "nonzero": Case(paddle.nonzero, grads=0),
    "unstack": Case(lambda x: paddle.unstack(x, 0)),
    "concat": Case(lambda x, y: paddle.concat([x, y]), ((3, 4), (2, 4)), 2),
    "meshgrid": Case(lambda x, y: paddle.meshgrid(x, y), ((3,), (4,)), 2),
    # products, sums, norms, losses
    "matmul": Case(paddle.matmul, ((5, 7), (7, 3)), 2),
    "matmul, transposed": Case(lambda x, y: paddle.matmul(x, y, transpose_y=True), ((2, 5, 7), (2, 3, 7)), 2),
    "matmul, broadcast": Case(paddle.matmul, ((2, 5, 7), (7, 3)), 2),
    "bmm": Case(paddle.bmm, ((2, 5, 7), (2, 7, 3)), 2),
    "dot": Case(paddle.dot, ((7,), (7,)), 2),
    "addmm": Case(paddle.addmm, ((5, 3), (5, 7), (7, 3)), 3),
    "mean": Case(lambda x: paddle.mean(x, 1)),
    "mean of all": Case(paddle.mean),
    "mean_all": Case(_C_ops.mean_all),
    "max": Case(lambda x: paddle.max(x, 1)),
    "min": Case(lambda x: paddle.min(x, 1)),
    "amax": Case(lambda x: paddle.amax(x, 1)),
    "amin": Case(lambda x: paddle.amin(x, 1)),
    "any": Case(lambda x: _C_ops.any(x, [1], False), grads=0),
    "all": Case(lambda x: _C_ops.all(x, [1], False), grads=0),
    "prod": Case(lambda x: paddle.prod(x, 1)),
    "std": Case(lambda x: _C_ops.std(x, [1], True, False, 1.0), grads=0),
    "var": Case(lambda x: _C_ops.var(x, [1], True, False, 1.0), grads=0),
    "logsumexp": Case(lambda x: paddle.logsumexp(x, 1)),
    "cumsum": Case(lambda x: paddle.cumsum(x, 1)),
    "cumprod": Case(lambda x: paddle.cumprod(x, 1)),
    "cummax": Case(lambda x: paddle.cummax(x, 1)[0]),
    "cummin": Case(lambda x: paddle.cummin(x, 1)[0]),
    "logcumsumexp": Case(lambda x: paddle.logcumsumexp(x, 1)),
    "softmax": Case(lambda x: F.softmax(x, -1)),
    "log_softmax": Case(lambda x: F.log_softmax(x, -1)),
    "p_norm": Case(lambda x: paddle.norm(x, 3, 1)),
    "frobenius_norm": Case(lambda x: _C_ops.frobenius_norm(x, [0, 1], False, False)),
    "squared_l2_norm": Case(_C_ops.squared_l2_norm),
    "clip_by_norm": Case(lambda x: _C_ops.clip_by_norm(x, 0.5), grads=0),
    "dist": Case(lambda x, y: paddle.dist(x, y, 2), ((3, 4), (3, 4)), 2),
    "layer_norm": Case(_normed, ((3, 4), (4,), (4,)), 3),
    "group_norm": Case(lambda x: F.group_norm(x, 2), (IMAGE,)),
    "batch_norm": Case(_batch_normed, (IMAGE,)),
    "conv2d": Case(F.conv2d, (IMAGE, (3, 2, 3, 3)), 2),
    "depthwise conv2d": Case(lambda x, w: F.conv2d(x, w, groups=2), (IMAGE, (2, 1, 3, 3)), 2),
    "conv2d_transpose": Case(F.conv2d_transpose, (IMAGE, (2, 3, 3, 3)), 2),
    "avg_pool2d": Case(lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    "max_pool2d_with_index": Case(lambda x: F.max_pool2d(x, 2, return_mask=True)[0], (IMAGE,)),
    "cross_entropy": Case(lambda x: F.cross_entropy(x, INDEX, reduction="none")),
    "nll_loss": Case(lambda x: F.nll_loss(x, INDEX, reduction="none")),
    "bce": Case(lambda x: F.binary_cross_entropy(x, paddle.full_like(x, 0.25), reduction="none")),
    "bce with logits": Case(lambda x: F.binary_cross_entropy_with_logits(x, paddle.full_like(x, 0.25), reduction="none")),
    "huber_loss": Case(lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), ((3, 4), (3, 4)), 2),
    "kl divergence": Case(lambda x, y: F.kl_div(x, y, reduction="none"), ((3, 4), (3, 4)), 1),
    "embedding": Case(lambda x: F.embedding(INDEX, x)),
    "sum": Case(lambda x: paddle.sum(x, 0), ((300, 4),)),
    "unscale": Case(_unscaled, grads=0),
}

ON_VIEWS = ("unsqueeze", "diagonal", "slice with a step")
"""Cases that have another kernel with FLAGS_use_stride_kernel=0."""

OF_RESULT = {
    **dict.fromkeys(("softmax", "tanh", "logcumsumexp"), 8),
    **dict.fromkeys(("log_softmax", "group_norm", "rsqrt", "expm1", "elu", "divide, broadcast"), 4),
    **dict.fromkeys(("exp", "erfinv", "reciprocal", "sqrt", "selu", "sigmoid", "divide", "prod", "logsumexp", "cumprod"), 2),
    **dict.fromkeys(("p_norm", "frobenius_norm", "dist", "cross_entropy", "huber_loss"), 2),
}
"""Cases whose gradient Paddle computes out of the result, which a half type has rounded: how many last bits that may cause."""

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "Momentum": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {"weight_decay": 0.1},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "Lamb": {},
    "NAdam": {},
    "RAdam": {},
    "Rprop": {"learning_rate_range": (2.0**-20, 32.0), "etas": (0.5, 1.25)},
}

_RNG_SEED = 7


def inputs_of(name: str) -> list[np.ndarray]:
    """The numbers of a case in float32, the same in every process."""
    rng = np.random.default_rng([_RNG_SEED, *name.encode()])
    low, high = RANGES.get(name, (None, None))
    shapes = CASES[name].shapes
    if low is None:
        return [rng.standard_normal(shape).astype("float32") for shape in shapes]
    return [rng.uniform(low, high, shape).astype("float32") for shape in shapes]
