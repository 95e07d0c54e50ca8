"""Small layers with fixed weights that are exported: what a program must keep, in kilobytes and milliseconds.

They use only what Paddle has had since 3.0.0, so that data/make_programs.py writes the same programs with older releases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.static import InputSpec

from xpulab import files
from xpulab.chapters.export.export_programs import Formula

WIDTH = 8
"""Features of the samples."""


@dataclass(frozen=True)
class Sample:
    """A layer to export, and arrays to try it on.

    make: a new layer in eval mode, with the same weights each time.
    specs: for each argument of its forward function its shape, None where the size may vary, and its type.
    inputs: one or more lists of arrays; each list is one call.
    """

    make: Callable[[], nn.Layer]
    specs: Sequence[tuple[list[int | None], str]]
    inputs: Sequence[Sequence[np.ndarray]]


def numbers(*shape: int) -> np.ndarray:
    """Float32 numbers between -1 and 1 that look irregular and are the same in every release."""
    return np.sin(1 + np.arange(np.prod(shape), dtype="float64") * 1.7).astype("float32").reshape(shape)


def export(layer: Any, path: str | Path, specs: Sequence[tuple[list[int | None], Any]]) -> str:
    """Write the program and weights of a layer as <path>.json and <path>.pdiparams; returns the path as a text.

    The inputs are named input_0, input_1, ... Afterwards the layer computes operator by operator again: to_static replaces its
    forward function, so that a comparison with the layer would otherwise be one of the program with itself.
    """
    given = [InputSpec(shape, dtype, name=f"input_{number}") for number, (shape, dtype) in enumerate(specs)]
    translated = paddle.jit.to_static(layer, full_graph=True)
    paddle.jit.save(translated, str(path), input_spec=given)
    translated.forward.rollback()
    return str(path)


class Perceptron(nn.Layer):
    """Normalization, two linear layers, GELU, dropout and softmax: [rows, 8] to [rows, 4]."""

    def __init__(self, hidden: int = 16, dropout: float = 0.5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, hidden), nn.Linear(hidden, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.second(self.dropout(F.gelu(self.first(self.norm(x))))), axis=-1)


class Attention(nn.Layer):
    """Embedding, and causal attention with a mask of minus infinity: ids [rows, tokens] to [rows, tokens, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        read = self.table(ids)
        query, key, value = self.query(read), self.key(read), self.value(read)
        scores = paddle.matmul(query, key, transpose_y=True) / WIDTH**0.5
        allowed = paddle.tril(paddle.ones_like(scores))
        scores = paddle.where(allowed > 0, scores, paddle.full_like(scores, float("-inf")))
        return paddle.matmul(F.softmax(scores, axis=-1), value)


class Loop(nn.Layer):
    """A loop and a condition that depend on values: [rows, 8] and a number of turns to [rows, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any, turns: Any) -> Any:
        turn = paddle.zeros([1], "int64")
        while turn < turns:
            if x.sum() > 0:  # noqa: SIM108 - the program must contain a condition
                x = x - 0.3
            else:
                x = F.tanh(self.linear(x)) + 0.1
            turn = turn + 1
        return x


class Pooling(nn.Layer):
    """A convolution, a maximum and a mean of windows, whose sizes are arrays: [rows, 1, 6, 8] to [rows, 2, 2, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2D(1, 2, 3, stride=[1, 2], padding=1)

    def forward(self, x: Any) -> Any:
        largest = F.max_pool2d(self.convolution(x), [2, 1], stride=[2, 1], padding=[1, 0])
        return F.avg_pool2d(largest, [3, 2], stride=[2, 1], padding=[1, 0])


class Stored(nn.Layer):
    """Multiplies by numbers that are stored in one type: [rows, 8] to [rows, 8], of float32."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.register_buffer("factors", paddle.to_tensor(4 * numbers(WIDTH)).astype(dtype))

    def forward(self, x: Any) -> Any:
        return x * self.factors.astype("float32")


def with_fixed_weights(layer: nn.Layer) -> nn.Layer:
    """The layer in eval mode, its parameters set to numbers that differ in each of them."""
    for number, weight in enumerate(layer.parameters()):
        weight.set_value(paddle.to_tensor(numbers(*weight.shape, number + 2)[..., number]))
    layer.eval()
    return layer


ROWS: list[tuple[list[int | None], str]] = [([None, WIDTH], "float32")]
"""The specification of one input: any number of rows with 8 features."""
_BATCHES = ([numbers(3, WIDTH)], [numbers(5, WIDTH)[::-1].copy()])

SAMPLES = {
    "perceptron": Sample(lambda: with_fixed_weights(Perceptron()), ROWS, _BATCHES),
    "attention": Sample(
        lambda: with_fixed_weights(Attention()),
        [([None, None], "int64")],
        ([np.array([[3, 1, 4, 1, 5]])], [np.array([[2, 7], [1, 8]])]),
    ),
    "loop": Sample(
        lambda: with_fixed_weights(Loop()),
        [([None, WIDTH], "float32"), ([1], "int64")],
        [[numbers(3, WIDTH), np.array([turns])] for turns in (0, 1, 5)],
    ),
    "bfloat16": Sample(lambda: with_fixed_weights(Stored("bfloat16")), ROWS, _BATCHES),
    "float8": Sample(lambda: with_fixed_weights(Stored("float8_e4m3fn")), ROWS, _BATCHES),
    "infinity": Sample(
        lambda: with_fixed_weights(Formula(lambda x: paddle.clip(x, -0.5, float("inf")) + paddle.full([WIDTH], 0.1))),
        ROWS,
        _BATCHES,
    ),
    "pooling": Sample(
        lambda: with_fixed_weights(Pooling()),
        [([None, 1, 6, 8], "float32")],
        ([numbers(3, 1, 6, 8)], [numbers(2, 1, 6, 8)[::-1].copy()]),
    ),
}
"""By name: the layers that data/make_programs.py exports with each release."""


@dataclass(frozen=True)
class Written:
    """The programs in data/programs that one release wrote.

    folder: where they are. results: by program, for each call the numbers that the release computed, in the order of memory.
    """

    folder: Path
    results: Mapping[str, Sequence[Sequence[float]]]


def written() -> dict[str, Written]:
    """By release, oldest first, the programs in data/programs."""
    found = {}
    for folder in sorted(files.data("programs").iterdir()):
        content = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        found[content["paddle"]] = Written(folder, {name: each["results"] for name, each in content["programs"].items()})
    return found
