"""What mixed precision does: types under auto_cast, the steps of GradScaler, and optimizers with master weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

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


def types_under_auto_cast(level: Any, dtype: Any) -> dict[str, str]:
    """By result the type that auto_cast gives it at this level on the device in use, where `dtype` is the type of products."""
    layer: Any = paddle.nn.Linear(8, 8)
    x = paddle.ones([2, 8])
    with _without_warnings(), paddle.amp.auto_cast(level=level, dtype=dtype):
        product, with_bias = F.linear(x, layer.weight), layer(x)
        exponentials = F.softmax(product)
    (product.sum() + with_bias.sum()).backward()
    found = {"product": product, "layer with a bias": with_bias, "exponentials": exponentials}
    found["gradient of a weight"] = layer.weight.grad
    return {name: str(tensor.dtype).removeprefix("paddle.") for name, tensor in found.items()}


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
