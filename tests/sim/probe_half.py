"""Kernels for half types beside Paddle's float32 kernels on the same numbers. Prints what differs, by case and type.

value, gradient: the largest error of a result in the last bit of its type, where 0 is float32's result rounded to nearest even.
"""

import ctypes
import json
import math

import numpy as np
import paddle

from xpulab import sim

sim.load()
paddle.set_device("sim:0")

from half_cases import CASES, OF_RESULT, ON_VIEWS, OPTIMIZERS, inputs_of  # noqa: E402

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


def without_elements(dtype):
    """Shapes of results of tensors without elements, and of their gradients."""
    x, y = (paddle.zeros(shape, dtype) for shape in ([0, 4], [4, 3]))
    x.stop_gradient = y.stop_gradient = False
    shapes = {}
    for name, function in {
        "matmul": lambda: x @ y,
        "add": lambda: x + paddle.zeros([0, 4], dtype),
        "add, broadcast": lambda: x + y[0, 0],
        "softmax": lambda: paddle.nn.functional.softmax(x, -1),
        "silu": lambda: paddle.nn.functional.silu(x),
        "concat": lambda: paddle.concat([x, y.t()]),
        "mean": lambda: paddle.mean(x, 0),
    }.items():
        result = function()
        (gradient,) = paddle.grad([result], [x])
        shapes[name] = [result.shape, gradient.shape, str(result.dtype), str(gradient.dtype)]
    return shapes


saw = {"cases": {}, "errors": {}, "optimizers": {}, "empty": {}}


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
    attempt("empty", dtype, without_elements, dtype)
paddle.set_flags({"FLAGS_use_stride_kernel": False})
for dtype in BITS:
    for name in ON_VIEWS:
        attempt("cases", f"{name} as a copy, {dtype}", compare, name, CASES[name], dtype)
library = sim._library()
library.xpulab_sim_why_no_half_kernel.restype = ctypes.c_char_p
saw["refused"] = {name: library.xpulab_sim_why_no_half_kernel(name.encode()).decode() for name in ("relu", "matmul", "no_such")}
kernels = sim.half_kernels()
saw["never called"] = sorted(f"{name} {dtype}" for (name, dtype), calls in kernels.added.items() if not calls)
saw["skipped"] = {f"{name} {dtype}": why for (name, dtype), why in kernels.skipped.items()}
print(json.dumps(saw))
