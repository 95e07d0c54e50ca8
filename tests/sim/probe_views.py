"""Copies of views in every dtype. Argument: "cpu" or "sim". Prints a digest of each case, or its error."""

import hashlib
import json
import sys

import paddle

if sys.argv[1] == "sim":
    from xpulab import sim

    sim.load()
paddle.set_device({"cpu": "cpu", "sim": "sim:0"}[sys.argv[1]])
DTYPES = [
    *(
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ),
    *("float8_e4m3fn", "float8_e5m2"),
]


def digest(tensor):
    raw = tensor.astype("float32") if "float8" in str(tensor.dtype) else tensor
    return [list(tensor.shape), hashlib.sha256(raw.numpy().tobytes()).hexdigest()[:16]]


def numbers(*shape):
    count = 1
    for size in shape:
        count *= size
    return paddle.to_tensor([(each * 7919) % 1013 / 64 - 8 for each in range(count)]).reshape(shape)


def typed(dtype):
    return (numbers(6, 5, 4) * 4).astype("int32").abs().astype(dtype)


def written(change):
    target = numbers(6, 5, 4)
    change(target)
    return target


def fill_view(target):
    target.transpose([1, 0, 2])[2].fill_(3.5)


def assign_into_rows(target):
    """dist.load_state_dict fills tensors in this way."""
    paddle.assign(numbers(2, 5, 4) + 1, paddle.slice(target, [0], [2], [4]))


def assign_into_columns(target):
    paddle.assign(numbers(6, 2, 4) + 1, paddle.slice(target, [1], [1], [3]))


big = numbers(300, 200)
cases = {
    "transpose": lambda: numbers(6, 5, 4).transpose([2, 0, 1]).contiguous(),
    "step": lambda: numbers(6, 5, 4)[::2, 1:4:2].contiguous(),
    "broadcast": lambda: numbers(6, 1, 4).expand([6, 5, 4]).contiguous(),
    "one element": lambda: numbers(6, 5, 4)[3, 2, 1].contiguous(),
    "nothing": lambda: numbers(6, 5, 4)[6:].contiguous(),
    "as_strided": lambda: paddle.as_strided(numbers(6, 5, 4), [3, 4], [8, 3], 5).contiguous(),
    "five dimensions": lambda: numbers(2, 3, 4, 5, 6).transpose([4, 2, 0, 3, 1])[1:, :, 0].contiguous(),
    "large": lambda: big.t().contiguous(),
    "large, then used": lambda: big.t()[3:] @ big[:, 1:],
    "fill view": lambda: written(fill_view),
    "assign into rows": lambda: written(assign_into_rows),
    "assign into columns": lambda: written(assign_into_columns),
    "assign another type": lambda: written(lambda target: paddle.assign(typed("int32"), target)),
    "fill": lambda: paddle.empty([40, 7]).fill_(2.5),
    "full of infinity": lambda: paddle.full([9], float("-inf")),
    **{f"view of {dtype}": (lambda dtype=dtype: typed(dtype).transpose([2, 1, 0])[1:].contiguous()) for dtype in DTYPES},
    **{f"into a view of {dtype}": (lambda dtype=dtype: into_view(dtype)) for dtype in DTYPES if "float8" not in dtype},
    **{f"fill of {dtype}": (lambda dtype=dtype: typed(dtype).fill_(1)) for dtype in DTYPES if "float8" not in dtype},
}


def into_view(dtype):
    target = typed(dtype)
    target.transpose([1, 0, 2])[1:3] = typed(dtype)[:2, :, :].transpose([0, 1, 2])[:, :1].expand([2, 6, 4])
    return target


saw = {}
for name, case in cases.items():
    try:
        saw[name] = digest(case())
    except Exception as error:
        saw[name] = type(error).__name__
print(json.dumps(saw))
