"""Operators in place on a part of a buffer. Argument: "cpu" or "sim". Prints for each what became of the part and the buffer.

moved: whether the part has another address afterwards. buffer: a digest of the buffer. changed: whether it is another one.
"""

import hashlib
import json
import sys

import paddle

if sys.argv[1] == "sim":
    from xpulab import sim

    sim.load()
paddle.set_device({"cpu": "cpu", "sim": "sim:0"}[sys.argv[1]])

import half_cases  # noqa: E402

ROWS = slice(3, 7)
"""Of a buffer of twelve rows: the part does not begin with the buffer, and does not end with it."""
MASK = paddle.to_tensor([[True, False, True, True]]).expand([4, 4])
INDEX = paddle.to_tensor([2, 0])
OTHER = paddle.linspace(0.1, 0.8, 16).reshape([4, 4])
WITH_PLAIN_STATE = ("SGD", "Momentum", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "Lamb")
WITHOUT_ARGUMENTS = (
    *("acos_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "cos_", "cosh_", "digamma_", "erfinv_", "exp_"),
    *("floor_", "lgamma_", "log_", "log10_", "log1p_", "log2_", "logit_", "neg_", "reciprocal_"),
    *("round_", "rsqrt_", "sigmoid_", "sin_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "tril_", "triu_", "trunc_"),
    *("cumsum_", "cumprod_", "exponential_", "cauchy_", "log_normal_"),
)


def numbers(dtype="float32"):
    return paddle.linspace(0.05, 0.95, 48).reshape([12, 4]).astype(dtype)


def set_item(part):
    part[1] = 7.0


def set_items(part):
    part[INDEX] = OTHER[:2]


CASES = {
    **{name: (lambda part, name=name: getattr(part, name)()) for name in WITHOUT_ARGUMENTS},
    "softmax_": lambda part: paddle.nn.functional.softmax_(part),
    "add_": lambda part: part.add_(OTHER),
    "add_, a number": lambda part: part.add_(paddle.to_tensor(1.5)),
    "add_, transposed": lambda part: part.add_(OTHER.t()),
    "subtract_": lambda part: part.subtract_(OTHER),
    "multiply_": lambda part: part.multiply_(OTHER),
    "divide_": lambda part: part.divide_(OTHER),
    "pow_": lambda part: part.pow_(2.0),
    "scale_": lambda part: part.scale_(0.5),
    "scale_, with a bias": lambda part: part.scale_(0.5, 2.0),
    "clip_": lambda part: part.clip_(0.4, 0.5),
    "lerp_": lambda part: part.lerp_(OTHER, 0.25),
    "fill_": lambda part: part.fill_(3.0),
    "check_finite_and_unscale_, a list": lambda part: paddle._C_ops.check_finite_and_unscale_([part], paddle.to_tensor([8.0])),
    "zero_": lambda part: part.zero_(),
    "copy_": lambda part: part.copy_(OTHER.astype(part.dtype), True),
    "set_value": lambda part: part.set_value(OTHER.astype(part.dtype)),
    "set_value, numpy": lambda part: part.set_value(OTHER.numpy()),
    "assign": lambda part: paddle.assign(OTHER, part),
    "full_": lambda part: paddle._C_ops.full_(part, [4, 4], 2.0, part.dtype, part.place),
    "add, out": lambda part: paddle.add(OTHER, OTHER, out=part),
    "increment": lambda part: paddle.increment(part.reshape_([16])[:1]),
    "masked_fill_": lambda part: part.masked_fill_(MASK, 9.0),
    "where_": lambda part: paddle.where_(MASK, part, OTHER),
    "scatter_": lambda part: part.scatter_(INDEX, OTHER[:2]),
    "index_add_": lambda part: part.index_add_(INDEX, 0, OTHER[:2]),
    "index_put_": lambda part: part.index_put_((INDEX,), OTHER[:2]),
    "index_fill_": lambda part: part.index_fill_(INDEX, 0, 6.0),
    "put_along_axis_": lambda part: part.put_along_axis_(paddle.to_tensor([[2], [0], [1], [3]]), 5.0, 1),
    "fill_diagonal_": lambda part: part.fill_diagonal_(8.0),
    "x[1] =": set_item,
    "x[index] =": set_items,
    "uniform_": lambda part: part.uniform_(0.0, 1.0),
    "normal_": lambda part: part.normal_(0.0, 1.0),
    "bernoulli_": lambda part: part.bernoulli_(0.5),
    "columns": lambda part: part[:, 1:3].add_(OTHER[:, 1:3]),
    "a part of the part": lambda part: part[1:3].multiply_(OTHER[:2]),
    "not in place": lambda part: part + 1.0,
}
HALF = ("add_", "multiply_", "scale_", "clip_", "fill_", "zero_", "copy_", "assign", "set_value", "x[1] =")


def digest(tensor):
    raw = tensor.astype("float32") if tensor.dtype in (paddle.bfloat16, paddle.float16) else tensor
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()[:16]


def run(case, dtype):
    paddle.seed(5)
    buffer = numbers(dtype)
    before, part = digest(buffer), buffer[ROWS]
    address = part.data_ptr()
    case(part)
    return {"moved": part.data_ptr() != address, "buffer": digest(buffer), "changed": digest(buffer) != before}


def attempt(case, *arguments):
    try:
        return case(*arguments)
    except Exception as error:  # of any class: the test shows it
        return f"{type(error).__name__}: {error}"[-400:]


def buffered(shape, dtype):
    """A weight that is a part of a buffer, as fleet makes one, and the buffer."""
    buffer = paddle.linspace(-1, 1, 48).astype(dtype)
    weight = paddle.create_parameter(shape, dtype, default_initializer=paddle.nn.initializer.Constant(0.0))
    buffer[8:24].reshape(shape)._share_buffer_to(weight)
    return buffer, weight


def trained(name, dtype, with_master):
    """Three steps of an optimizer on a weight in a buffer."""
    buffer, weight = buffered([4, 4], dtype)
    optimizer = getattr(paddle.optimizer, name)(learning_rate=0.125, parameters=[weight], **half_cases.OPTIMIZERS[name])
    optimizer._multi_precision = with_master
    address, of_state, moved = weight.data_ptr(), {}, []
    for step in range(3):
        (weight * (OTHER + step).astype(dtype)).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        state = [value for held in optimizer._accumulators.values() for value in held.values()]
        state += optimizer._master_weights.values()
        found = {value.name: value.data_ptr() for value in state if value.place == weight.place}
        moved += [key for key in of_state if of_state[key] != found[key]]
        of_state = found
    state = optimizer.state_dict()
    state = {**state, **state.pop("master_weights", {})}
    kept = [digest(value) for key, value in sorted(state.items()) if isinstance(value, paddle.Tensor)]
    return {"moved": weight.data_ptr() != address or moved != [], "buffer": [digest(buffer), *kept], "states": len(of_state)}


def backward_after_a_change():
    """What backward says when a value that it needs was changed in place."""
    x = paddle.ones([3])
    x.stop_gradient = False
    y = x.exp()
    y.detach().scale_(2.0)
    y.sum().backward()


def memory_after_a_change():
    """The bytes that are left when a tensor that was changed in place is gone."""
    before = paddle.device.memory_allocated("sim:0")
    x = paddle.ones([1024])
    x.add_(x)
    x = None
    return paddle.device.memory_allocated("sim:0") - before


saw = {"cases": {name: attempt(run, case, "float32") for name, case in CASES.items()}}
saw["half"] = {f"{name}, {dtype}": attempt(run, CASES[name], dtype) for name in HALF for dtype in ("bfloat16", "float16")}
saw["optimizers"] = {name: trained(name, "float32", False) for name in WITH_PLAIN_STATE}
saw["backward"] = attempt(backward_after_a_change)
if sys.argv[1] == "sim":
    for name in ("SGD", "Momentum", "Adam", "AdamW"):
        for dtype in ("bfloat16", "float16"):
            saw["optimizers"][f"{name}, {dtype}"] = attempt(trained, name, dtype, True)
    saw["left"] = memory_after_a_change()
print(json.dumps(saw))
