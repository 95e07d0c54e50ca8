"""Rotary positions on a grid: PaddleNLP's tables of cosines and sines and its rotation, forward and backward, by formula.

    check.grid("operators.rotary", rotary(claimed), one_by_one(measure), add_row, level=level, seed=seed, means=...)

PaddleNLP computes angles in float32, whatever the type of the model: an angle of 4,000 is known to 2e-4. So the bound of an
element grows with its angle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.incubate.nn.functional as fused
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2
from paddlenlp.transformers.qwen2_moe import modeling as qwen2_moe

from xpulab.chapters.numerics.operator_grids import LAYOUTS, VALUES, Compared, Right, add_compared, computed
from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.chapters.shared.precision import BITS
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table
from xpulab.reference import kernels

CACHED, FACTOR = 64, 4.0
"""For how many positions tables are made before a longer sequence comes, and by which factor some stretch positions."""

ORIGINAL = 32
"""The length that Llama 3's table was trained for."""


@dataclass(frozen=True)
class Rotation:
    """A table and a rotation.

    table: PaddleNLP's layer, of the size of a head, how many positions and the base. frequencies: by how much a position turns
    each pair of elements, in double precision, of the size, the base and the length. module: the one with apply_rotary_pos_emb.
    """

    table: Callable[[int, int, float], Any]
    frequencies: Callable[[int, float, int], np.ndarray]
    module: Any


def _plain(size: int, base: float, length: int = 0) -> np.ndarray:
    """For each pair of elements by how much one position turns it, in radians; [size / 2]."""
    return base ** (-np.arange(0, size, 2) / size)


def _stretched(factor: float) -> Callable[[int, float, int], np.ndarray]:
    return lambda size, base, length: _plain(size, base * factor ** (size / (size - 2)))


def _dynamic(size: int, base: float, length: int) -> np.ndarray:
    return _stretched(max(1.0, FACTOR * length / CACHED - (FACTOR - 1)))(size, base, length)


def _llama3(size: int, base: float, length: int) -> np.ndarray:
    """Fast frequencies stay, slow ones are divided by the factor, and between 1 and 4 turns both are mixed."""
    plain = _plain(size, base)
    share = np.clip((ORIGINAL * plain / (2 * math.pi) - 1) / (4 - 1), 0, 1)
    return share * plain + (1 - share) * plain / FACTOR


ROTATIONS = {
    "Llama": Rotation(llama.LlamaRotaryEmbedding, _plain, llama),
    "Llama, linear": Rotation(
        lambda size, count, base: llama.LlamaLinearScalingRotaryEmbedding(size, count, base, FACTOR),
        lambda size, base, length: _plain(size, base) / FACTOR,
        llama,
    ),
    "Llama, NTK": Rotation(
        lambda size, count, base: llama.LlamaNTKScalingRotaryEmbedding(size, count, base, FACTOR),
        _stretched(FACTOR),
        llama,
    ),
    "Llama, dynamic NTK": Rotation(
        lambda size, count, base: llama.LlamaDynamicNTKScalingRotaryEmbedding(size, CACHED, base, FACTOR),
        _dynamic,
        llama,
    ),
    "Llama 3": Rotation(
        lambda size, count, base: llama.Llama3RotaryEmbedding(
            size, count, base, FACTOR, original_max_position_embeddings=ORIGINAL
        ),
        _llama3,
        llama,
    ),
    "Qwen2": Rotation(lambda size, count, base: qwen2.Qwen2RotaryEmbedding(size, CACHED, base), _plain, qwen2),
    "Qwen2-MoE": Rotation(
        lambda size, count, base: qwen2_moe.Qwen2MoeRotaryEmbedding(size, CACHED, base),
        _plain,
        qwen2_moe,
    ),
}


FUSED = "fused_rotary_position_embedding"


def _fused(query: Any, key: Any, cosine: Any, sine: Any, positions: Any) -> Any:
    """As PaddleNLP's fusion_ops calls it."""
    turned = fused.fused_rotary_position_embedding(
        query, key, None, sin=sine, cos=cosine, position_ids=positions, use_neox_rotary_style=False
    )
    return turned[:2]


POSITIONS: dict[str, Callable[[int], Any]] = {
    "from 0": lambda length: np.tile(np.arange(length), (2, 1)),
    "not given": lambda length: None,
    "after a cache": lambda length: np.tile(np.arange(length) + 5, (2, 1)),
    "padded on the left": lambda length: np.maximum(np.arange(length) - np.array([[0], [length // 2]]), 0),
    "packed": lambda length: np.tile(np.arange(length) % max(1, length // 2), (2, 1)),
    "far": lambda length: np.tile(np.arange(length) + 4000, (2, 1)),
}
"""By name the positions [2, length] of two rows."""

RULES: dict[str, Callable[..., bool]] = {
    "the device has no kernel for fused rotary positions": lambda way: way and bool(lacked(FUSED, "float32")),
    "NTK divides by the size less 2": lambda rotation, size: "NTK" in rotation and size == 2,
}


def rotary(types: Sequence[str]) -> Grid:
    """The grid, on the device in use. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "way": {"apply_rotary_pos_emb": False, "fused": True},
        "rotation": tuple(ROTATIONS),
        "dtype": types,
        "layout": LAYOUTS,
        "length": (17, 1, 33, 130),
        "positions": POSITIONS,
        "heads": {"4 of 4": (4, 4), "4 of 2": (4, 2), "3 of 1": (3, 1)},
        "size": (64, 6, 2, 128),
        "base": (10000.0, 1e6),
        "values": {name: VALUES[name] for name in ("normal", "near zero", "a large mean", "negative")},
    }
    return Grid(axes, RULES)


def measure(case: Case) -> Compared:
    """Rotate queries and keys on the device in use, and their gradients back."""
    rng, rotation, positions = case.rng(), ROTATIONS[case.rotation], case.positions(case.length)
    given = [case.layout(case.values(rng, (2, case.length, heads, case.size)), case.dtype) for heads in case.heads]
    at = np.tile(np.arange(case.length), (2, 1)) if positions is None else positions
    count = int(at.max()) + 1
    table = rotation.table(case.size, count, case.base)
    cosine, sine = table(given[0], seq_len=count)
    ids = None if positions is None else paddle.to_tensor(positions)
    rotate = _fused if case.way else rotation.module.apply_rotary_pos_emb
    angles = at[..., None] * np.tile(rotation.frequencies(case.size, case.base, count), 2)
    unit = _share(case.dtype, angles)[:, :, None, :]

    def call(query: Any, key: Any) -> Any:
        return paddle.concat(rotate(query, key, cosine, sine, ids), axis=2)

    def turned(heads: np.ndarray, direction: int) -> Right:
        rows = [
            kernels.rotated(row[None], np.cos(angle), direction * np.sin(angle))
            for row, angle in zip(heads, angles, strict=True)
        ]
        both = np.abs(heads) + np.abs(np.roll(heads, case.size // 2, axis=-1))
        return np.concatenate(rows), both * unit

    def value(query: np.ndarray, key: np.ndarray) -> Right:
        return turned(np.concatenate([query, key], axis=2), 1)

    def slopes(weight: np.ndarray, query: np.ndarray, key: np.ndarray) -> list[Right]:
        return [turned(part, -1) for part in np.split(weight, [case.heads[0]], axis=2)]

    return computed(rng, case.dtype, call, given, value, slopes)


def _share(dtype: str, angles: np.ndarray) -> np.ndarray:
    """How large the error of a cosine or sine may be, in what precision.tolerance counts a term with."""
    counted = 2.0 ** (3 - (BITS["float64"] if dtype == "float64" else BITS["float32"]))
    return (2.0 ** -BITS[dtype] + 2.0 ** (1 - BITS["float32"]) * (1 + angles)) / counted


def add_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case."""
    add_compared(rows, case.name, found, case.dtype, (FUSED if case.way else "multiply",))
