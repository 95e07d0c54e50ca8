"""What mixed precision does: types under auto_cast, the steps of GradScaler, and optimizers with master weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.amp.auto_cast import amp_global_state

from xpulab.chapters.shared.missing_kernels import results_of
from xpulab.checks.table import Table

UPDATE, STEPS = 2.0**-12, 64
"""The size of one update of a weight that is 1, and how many there are. The half types lose each of them."""


def expected_types(level: str, dtype: str) -> dict[str, str]:
    """By result the type that Paddle 3.3.1 gives it at this level, where `dtype` is the type of products.

    Source: paddle/amp/amp_lists.py: products are on the white list, exponentials on the black list of O1 only. A layer's
    bias is float32, and so is the sum with it, but where the layer is one operator (linear_v2: wheels for CUDA).
    """
    return {
        "product": dtype,
        "layer with a bias": dtype if paddle.is_compiled_with_cuda() else "float32",
        "exponentials": "float32" if level == "O1" else dtype,
        "gradient of a weight": "float32",
    }


def types_under_auto_cast(level: Any, dtype: Any, use_promote: bool = True) -> dict[str, str]:
    """By result the type that auto_cast gives it at this level on the device in use, where `dtype` is the type of products."""
    layer: Any = paddle.nn.Linear(8, 8)
    x = paddle.ones([2, 8])
    with _without_warnings(), paddle.amp.auto_cast(level=level, dtype=dtype, use_promote=use_promote):
        product, with_bias = F.linear(x, layer.weight), layer(x)
        exponentials = F.softmax(product)
    (product.sum() + with_bias.sum()).backward()
    found = {"product": product, "layer with a bias": with_bias, "exponentials": exponentials}
    found["gradient of a weight"] = layer.weight.grad
    return {name: _type_of(tensor) for name, tensor in found.items()}


def _type_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("paddle.")


DECORATED: dict[str, dict[str, Any]] = {
    "default": {},
    "master_weight=False": {"master_weight": False},
    "save_dtype": {"save_dtype": "float32"},
    "master_grad": {"master_grad": True},
    "all three": {"master_weight": False, "save_dtype": "float32", "master_grad": True},
}
"""By name the options of decorate beside level and dtype."""


def decorated_types(dtype: Any, **options: Any) -> list[str]:
    """Of a layer after a step: the types of weight, gradient and saved weight, how many float32 copies AdamW has, its moments.

    options: of DECORATED, and of AdamW use_lowprecision_moment.
    """
    state = amp_global_state()
    before = state.use_master_grad, [*state.model_parameters]
    moments = {name: options.pop(name) for name in ("use_lowprecision_moment",) if name in options}
    layer: Any = paddle.nn.Linear(4, 4, bias_attr=False)
    optimizer: Any = paddle.optimizer.AdamW(parameters=layer.parameters(), **moments)
    try:
        with _without_warnings():
            layer, optimizer = paddle.amp.decorate(layer, optimizer, level="O2", dtype=dtype, **options)
            with paddle.amp.auto_cast(level="O2", dtype=dtype):
                loss = layer(paddle.ones([2, 4])).astype("float32").sum()
            loss.backward()
            optimizer.step()
    finally:
        state.use_master_grad, state.model_parameters[:] = before
    held = optimizer.state_dict()
    moment = next(value for name, value in held.items() if "moment1" in name)
    saved = layer.state_dict()["weight"]
    copies = str(len(held.get("master_weights", {})))
    return [*map(_type_of, (layer.weight, layer.weight.grad, saved)), copies, _type_of(moment)]


def expected_of_decorated(dtype: str, **options: Any) -> list[str]:
    """The same as documented."""
    is_half, has_copies = dtype != "float32", options.get("master_weight") is not False
    of_moments = options.get("use_lowprecision_moment") and not has_copies
    gradient = "float32" if options.get("master_grad") else dtype
    return [
        dtype,
        gradient,
        options.get("save_dtype", dtype),
        str(int(is_half and has_copies)),
        dtype if of_moments else "float32",
    ]


def add_unpromoted_rows(rows: Table, halves: Sequence[str]) -> None:
    """A row for each type: the sum of a product in it and a bias in float32, with use_promote=False; the control is with it."""
    for dtype in halves if not paddle.is_compiled_with_cuda() else ():  # there it is one operator
        promoted, found = (types_under_auto_cast("O2", dtype, each)["layer with a bias"] for each in (True, False))
        rows.equal(f"layer with a bias, use_promote=False, {dtype}", found, dtype, control=promoted)


def add_decorated_rows(rows: Table, halves: Sequence[str]) -> None:
    """A row for each type and options of decorate, and what Paddle says of the types. halves: the device's, none of a CPU.

    A CPU says of bfloat16 what its processor has.
    """
    cases = DECORATED | {"use_lowprecision_moment": DECORATED["master_weight=False"] | {"use_lowprecision_moment": True}}
    for dtype in halves or ["bfloat16"]:
        for name, options in cases.items():
            right = expected_of_decorated(dtype, **options) if halves else expected_of_decorated("float32")
            wrong = expected_of_decorated(dtype) if options or not halves else expected_of_decorated("float32")
            rows.equal(f"{name}, {dtype}", decorated_types(dtype, **options), right, control=wrong)
    place = paddle.get_device()
    is_supported = {"float16": paddle.amp.is_float16_supported(place)}
    is_supported |= {"bfloat16": paddle.amp.is_bfloat16_supported(place)} if halves else {}
    for dtype, found in is_supported.items():
        rows.equal(f"{dtype} is supported", found, dtype in halves, control=dtype not in halves)


def scaled_steps(slopes: list[float]) -> dict[str, list[float]]:
    """What GradScaler did in SGD steps of rate 0.5 on a weight that starts at 4, with a loss of this slope in each step.

    By name a number for each step: the gradients before it, the weights and the factors after it. The factor starts at 1024,
    doubles after two good steps, and halves after an infinite gradient.
    """
    weight: Any = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(4.0))
    optimizer = paddle.optimizer.SGD(learning_rate=0.5, parameters=[weight])
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)
    steps: dict[str, list[float]] = {"gradients": [], "weights": [], "factors": []}
    for slope in slopes:
        with paddle.amp.auto_cast(dtype="float16"):
            scaled = scaler.scale(weight.sum() * slope)
        scaled.backward()
        steps["gradients"].append(weight.grad.item())
        with redirect_stdout(StringIO()):  # it prints each infinite gradient
            scaler.step(optimizer)
            scaler.update()
        optimizer.clear_grad()
        steps["weights"].append(weight.item())
        steps["factors"].append(float(scaler.state_dict()["scale"][0]))
    return steps


MASTER_WEIGHTS = [(optimizer, dtype) for dtype in ("bfloat16", "float16") for optimizer in ("SGD", "Momentum", "AdamW")]
"""Optimizers, names of classes of paddle.optimizer, each with the type of its weight."""


def master_weight_row(rows: Table, optimizer: str, dtype: Any) -> None:
    """A row: a weight after its updates with multi_precision=True; the control is without.

    The row is skipped where the device in use is known to have no kernel.
    """
    case = f"{optimizer}, {dtype}"
    both = partial(_updated, optimizer, dtype)
    if found := results_of(rows, case, lambda: [both(True), both(False)], optimizer.lower(), dtype):
        updated, without = (each.astype("float32").numpy() for each in found)
        rows.close(case, updated, np.full([1, 1], 1 + STEPS * UPDATE), atol=2.0**-8, control=without)


def _updated(optimizer: str, dtype: Any, multi_precision: bool) -> paddle.Tensor:
    layer = paddle.nn.Linear(1, 1, bias_attr=False).to(dtype=dtype)
    layer.weight.set_value(paddle.ones([1, 1]).astype(dtype))
    settings: dict[str, Any] = {"weight_decay": 0.0} if optimizer == "AdamW" else {}
    if optimizer == "Momentum":
        settings["momentum"] = 0.0
    stepper = getattr(paddle.optimizer, optimizer)(
        learning_rate=UPDATE, parameters=layer.parameters(), multi_precision=multi_precision, **settings
    )
    with _without_warnings():
        for _ in range(STEPS):
            (-layer.weight.sum()).backward()
            stepper.step()
            stepper.clear_grad()
    return layer.weight


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Without the warnings that mixed precision has no effect on the CPU, and that a weight has no master weight."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
