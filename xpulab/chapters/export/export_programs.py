"""Programs that are exported: results, warnings and errors of them, and a layer of one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn


def compute(layer: Any, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The result of a layer, or of a loaded program, for these arrays, as float32 unless it is of integers."""
    result = layer(*map(paddle.to_tensor, inputs))
    wide = result.astype("float32") if result.dtype in (paddle.bfloat16, paddle.float16) else result
    return wide.numpy()


class Formula(nn.Layer):
    """A function of one tensor as a layer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def failure_of(call: Callable[[], Any]) -> str:
    """The kind of error that a call raises; "none" when it raises none."""
    try:
        call()
    except Exception as error:  # of any kind: it comes from Python that was written for eager mode
        return type(error).__name__
    return "none"
