"""What mixed precision does: types under auto_cast, the steps of GradScaler, and optimizers with master weights.

Offered: UnderAutoCast, under_auto_cast, expected_types, ScaledSteps, scaled_steps, unscaled, MASTER_WEIGHTS, master_weight_row.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import _C_ops

from xpulab.chapters.shared.missing_kernels import results_of
from xpulab.chapters.shared.precision import on_device
from xpulab.checks.table import Table

UPDATE, STEPS = 2.0**-12, 64
"""The size of one update of a weight that is 1, and how many there are. The half types lose each of them."""


@dataclass(frozen=True)
class UnderAutoCast:
    """What auto_cast does with a half type.

    types: by level, "O1" or "O2", and by result its type. product: the result of F.linear [32, 64] @ [64, 32] at O1, that of
    rounded factors, and that of the factors as they are.
    """

    types: dict[str, dict[str, str]]
    product: tuple[np.ndarray, np.ndarray, np.ndarray]


def under_auto_cast(dtypes: list[str], seed: int) -> dict[str, UnderAutoCast]:
    """By half type what auto_cast does with it on the device in use. The seed draws the factors."""
    return {
        dtype: UnderAutoCast({level: _types_under(level, dtype) for level in ("O1", "O2")}, _product(dtype, seed))
        for dtype in dtypes
    }


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


def _types_under(level: Any, dtype: Any) -> dict[str, str]:
    layer: Any = paddle.nn.Linear(8, 8)
    x = paddle.ones([2, 8])
    with _without_warnings(), paddle.amp.auto_cast(level=level, dtype=dtype):
        product, with_bias = F.linear(x, layer.weight), layer(x)
        exponentials = F.softmax(product)
    (product.sum() + with_bias.sum()).backward()
    found = {"product": product, "layer with a bias": with_bias, "exponentials": exponentials}
    found["gradient of a weight"] = layer.weight.grad
    return {name: str(tensor.dtype).removeprefix("paddle.") for name, tensor in found.items()}


def _product(dtype: Any, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    left, right = np.random.default_rng(seed).standard_normal((2, 64, 32)).astype("float32")
    (_, rounded_left), (_, rounded_right) = (on_device(each, dtype) for each in (left.T, right))
    with _without_warnings(), paddle.amp.auto_cast(level="O1", dtype=dtype):
        result = F.linear(paddle.to_tensor(left.T), paddle.to_tensor(right))
    return result.astype("float64").numpy(), rounded_left @ rounded_right, left.T.astype("float64") @ right


@dataclass(frozen=True)
class ScaledSteps:
    """What GradScaler did, a number for each step: the gradient before the step, weight and factor after it."""

    gradients: list[float]
    weights: list[float]
    factors: list[float]


def scaled_steps(slopes: list[float]) -> ScaledSteps:
    """SGD steps of rate 0.5 on a weight that starts at 4, with a loss of this slope in each step.

    The factor starts at 1024, doubles after two good steps, and halves after an infinite gradient.
    """
    weight: Any = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(4.0))
    optimizer = paddle.optimizer.SGD(learning_rate=0.5, parameters=[weight])
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)
    steps = ScaledSteps([], [], [])
    for slope in slopes:
        with paddle.amp.auto_cast(dtype="float16"):
            scaled = scaler.scale(weight.sum() * slope)
        scaled.backward()
        steps.gradients.append(weight.grad.item())
        with redirect_stdout(StringIO()):  # it prints each infinite gradient
            scaler.step(optimizer)
            scaler.update()
        optimizer.clear_grad()
        steps.weights.append(weight.item())
        steps.factors.append(float(scaler.state_dict()["scale"][0]))
    return steps


def unscaled(gradients: list[float], factor: float) -> tuple[list[float], bool]:
    """The gradients divided by the factor, and whether one of them is infinite or not a number, as GradScaler finds it."""
    divided, found = _C_ops.check_finite_and_unscale_([paddle.to_tensor(gradients)], paddle.to_tensor([factor]))
    return [float(each) for each in divided[0].numpy()], bool(found)


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
