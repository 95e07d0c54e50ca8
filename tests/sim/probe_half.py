"""Kernels for half types beside Paddle's float32 kernels on the same numbers. Prints what differs, by case and type.

value, gradient: the largest error of a result in the last bit of its type, where 0 is float32's result rounded to nearest even.
The cases have each kind of argument that a kernel takes; chapters 17 and 18 try the operators themselves.
"""

import ctypes
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import _C_ops

from xpulab import sim

sim.load()
paddle.set_device("sim:0")

UNARY = ["abs", "erf", "exp", "round", "sign", "sin", "square", "tanh"]
ACTIVATIONS = ["celu", "elu", "gelu", "hardsigmoid", "hardtanh", "leaky_relu", "relu", "selu", "sigmoid", "silu", "softplus"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "fmin", "remainder", "atan2"]


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


SQUARE, IMAGE = (4, 4), (2, 2, 6, 6)
CASES = {
    **{name: Case(getattr(paddle, name)) for name in UNARY},
    **{name: Case(getattr(F, name)) for name in ACTIVATIONS},
    **{name: Case(getattr(paddle, name), ((3, 4), (3, 4)), 2) for name in BINARY},
    "add, broadcast": Case(paddle.add, ((2, 3, 4), (4,)), 2),
    "clip": Case(lambda x: paddle.clip(x, -0.5, 0.7)),
    "pow to a number": Case(lambda x: x**3.0),
    "swiglu": Case(F.swiglu, ((3, 4), (3, 4)), 2),
    "where": Case(lambda x, y: paddle.where(MASK, x, y), ((3, 4), (3, 4)), 2),
    "gather_nd": Case(lambda x: paddle.gather_nd(x, paddle.to_tensor([[0, 1], [2, 3]])), ((3, 4),)),
    "x[index]": Case(lambda x: x[MANY], ((5, 6),)),
    "x[1:][:, index]": Case(lambda x: x[1:][:, INDEX], ((5, 6),)),
    "tril": Case(paddle.tril, (SQUARE,)),
    "take_along_axis": Case(lambda x: paddle.take_along_axis(x, paddle.to_tensor([[0, 1, 1, 2]]), 0, broadcast=False)),
    "tile": Case(lambda x: paddle.tile(x, [2, 3])),
    "pad": Case(lambda x: F.pad(x, [1, 2, 0, 1], value=0.5)),
    "argmax": Case(lambda x: paddle.argmax(x, axis=1), grads=0),
    "gather": Case(lambda x: paddle.gather(x, INDEX, 0)),
    "topk": Case(lambda x: paddle.topk(x, 2)[0]),
    "nonzero": Case(paddle.nonzero, grads=0),
    "concat": Case(lambda x, y: paddle.concat([x, y]), ((3, 4), (2, 4)), 2),
    "matmul": Case(paddle.matmul, ((5, 7), (7, 3)), 2),
    "mean": Case(lambda x: paddle.mean(x, 1)),
    "max": Case(lambda x: paddle.max(x, 1)),
    "cumsum": Case(lambda x: paddle.cumsum(x, 1)),
    "softmax": Case(lambda x: F.softmax(x, -1)),
    "squared_l2_norm": Case(_C_ops.squared_l2_norm),
    "layer_norm": Case(_normed, ((3, 4), (4,), (4,)), 3),
    "batch_norm": Case(_batch_normed, (IMAGE,)),
    "conv2d": Case(F.conv2d, (IMAGE, (3, 2, 3, 3)), 2),
    "avg_pool2d": Case(lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    "cross_entropy": Case(lambda x: F.cross_entropy(x, INDEX, reduction="none")),
    "unscale": Case(_unscaled, grads=0),
}

OF_RESULT = {"softmax": 8, "tanh": 8, "elu": 4, **dict.fromkeys(("exp", "selu", "sigmoid", "divide", "cross_entropy"), 2)}
"""Cases whose gradient Paddle computes out of the result, which a half type has rounded: how many last bits that may cause."""

OPTIMIZERS: dict[str, dict[str, Any]] = {"SGD": {}, "Momentum": {"momentum": 0.9}, "AdamW": {"weight_decay": 0.1}, "Lamb": {}}


def inputs_of(name):
    """The numbers of a case in float32."""
    rng = np.random.default_rng([7, *name.encode()])
    return [rng.standard_normal(shape).astype("float32") for shape in CASES[name].shapes]


BITS = {"float16": (10, -14), "bfloat16": (7, -126)}


def last_bits(got, want, dtype):
    """The largest |got - round(want)| in units of the last bit that the type has for the number, rounded by numpy."""
    fraction, least = BITS[dtype]
    want = np.asarray(want, "float64")
    unit = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(want), 1e-45))), least) - fraction)
    rounded = np.rint(want / unit) * unit  # rint rounds to even
    with np.errstate(invalid="ignore"):
        error = np.where(got == rounded, 0.0, np.abs(got - rounded) / unit)
    return float(np.where(np.isnan(got) & np.isnan(rounded), 0.0, error).max(initial=0.0))


def run(case, arrays, dtype, seeds):
    """Results and gradients as float64 arrays, and the types of the results."""
    tensors = [paddle.to_tensor(array).astype(dtype) for array in arrays]
    for tensor in tensors[: case.grads]:
        tensor.stop_gradient = False
    results = case.function(*tensors)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    gradients = []
    if case.grads:
        given = [
            paddle.to_tensor(seed[: math.prod(each.shape)]).reshape(each.shape).astype(each.dtype)
            for seed, each in zip(seeds, results, strict=False)
        ]
        gradients = paddle.grad(results, tensors[: case.grads], given)
    values = [each.astype("float64").numpy() for each in results]
    return values, [each.astype("float64").numpy() for each in gradients], [str(each.dtype) for each in (*results, *gradients)]


def rounded(array, dtype):
    """The numbers that the type has nearest to these, in float32."""
    return paddle.to_tensor(array).astype(dtype).astype("float32").numpy()


def compare(name, case, dtype):
    """The largest errors of values and gradients, and the types of both."""
    rng = np.random.default_rng(3)
    arrays = [rounded(array, dtype) for array in inputs_of(name)]
    seeds = [rounded(rng.standard_normal(2400).astype("float32"), dtype) for _ in range(8)]
    got, want = run(case, arrays, dtype, seeds), run(case, arrays, "float32", seeds)
    errors = [
        max((error_of(*each, dtype) for each in zip(got[part], want[part], types, strict=True)), default=0.0)
        for part, types in ((0, got[2][: len(got[0])]), (1, got[2][len(got[0]) :]))
    ]
    return {"value": errors[0], "gradient": errors[1], "limit": OF_RESULT.get(name, 0), "types": sorted(set(got[2]))}


def error_of(got, want, kind, dtype):
    return last_bits(got, want, dtype) if kind.endswith(dtype) else float(not np.array_equal(got, want))


def weights_after(name, options, dtype, slopes, with_master):
    """The weight in its type and the float32 copy, both as float64 arrays, after a step for each gradient."""
    start = rounded(np.linspace(-2, 2, 12).reshape(4, 3).astype("float32"), "bfloat16")
    weight = paddle.create_parameter([4, 3], dtype, default_initializer=paddle.nn.initializer.Constant(0.0))
    weight.set_value(paddle.to_tensor(start).astype(dtype))
    # a rate that half types have: some optimizers round it
    optimizer = getattr(paddle.optimizer, name)(learning_rate=2.0**-7, parameters=[weight], **options)
    optimizer._multi_precision = with_master
    for slope in slopes:
        (weight * paddle.to_tensor(slope).astype(dtype)).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    copy = optimizer._master_weights[weight.name] if with_master else weight
    return weight.astype("float64").numpy(), copy.astype("float64").numpy()


def compare_optimizer(name, options, dtype):
    rng = np.random.default_rng(5)
    slopes = [rounded(rng.standard_normal((4, 3)).astype("float32"), "bfloat16") for _ in range(4)]
    single, _ = weights_after(name, options, "float32", slopes, False)
    one, _ = weights_after(name, options, "float32", slopes[:1], False)
    weight, copy = weights_after(name, options, dtype, slopes, True)
    alone, _ = weights_after(name, options, dtype, slopes[:1], False)
    return {
        "copy": float(np.abs(copy - single).max()),
        "weight": last_bits(weight, copy, dtype),
        "alone": last_bits(alone, one, dtype),
    }


saw = {"cases": {}, "errors": {}, "optimizers": {}}


def attempt(part, name, function, *arguments):
    try:
        saw[part][name] = function(*arguments)
    except Exception as error:  # of any class: the test shows it
        saw["errors"][f"{part}: {name}"] = f"{type(error).__name__}: {error}"[-600:]


for dtype in BITS:
    for name, case in CASES.items():
        attempt("cases", f"{name}, {dtype}", compare, name, case, dtype)
    for name, options in OPTIMIZERS.items():
        attempt("optimizers", f"{name}, {dtype}", compare_optimizer, name, options, dtype)
library = sim._library()
library.xpulab_sim_why_no_half_kernel.restype = ctypes.c_char_p
saw["refused"] = {name: library.xpulab_sim_why_no_half_kernel(name.encode()).decode() for name in ("relu", "matmul", "no_such")}
kernels = sim._library().xpulab_sim_half_kernels().decode().splitlines()
saw["skipped"] = [line for line in kernels if " added " not in line]
print(json.dumps(saw))
