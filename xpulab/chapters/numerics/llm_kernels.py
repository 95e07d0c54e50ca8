"""Operators at the sizes of large language models, forward and backward, each compared with its formula in double precision.

Offered: bound, compare_results, LINEAR, around, linear_rows, chunk_rows, ROW_COUNTS, rows_of_batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.precision import BITS, on_device
from xpulab.checks.table import Table
from xpulab.reference import kernels

ROUNDINGS, TERMS, SHORT_SUM = 4, 8, 1024
"""How many roundings to the type a kernel may make one after another, by how much the rounded terms of a sum may add up, and
up to how many terms that holds."""

LINEAR = {
    "smoke": ((8, 512, 64),),
    "quick": ((8, 4096, 64), (8, 11008, 64), (4096, 64, 64), (8, 64, 11008), (2, 4, 151_936), (2, 4, 248_320)),
    "standard": ((8, 4096, 4096), (8, 11008, 1024), (4096, 256, 256), (4, 64, 151_936), (4, 64, 248_320)),
}
"""By level (rows, inputs, outputs) of linear layers: hidden sizes 4096 and 11008, vocabularies of 151,936 and 248,320."""

ROW_COUNTS = (1, 1023, 1024, 1025, 2049)
"""Numbers of rows around the size at which kernels divide a batch."""


def around(powers: Iterable[int]) -> tuple[tuple[int, int, int], ...]:
    """(rows, inputs, outputs) with one of them 2^k - 1, 2^k or 2^k + 1, and the other two 64."""
    sizes = [2**power + step for power in powers for step in (-1, 0, 1)]
    return tuple(dict.fromkeys(shape for size in sizes for shape in ((size, 64, 64), (64, size, 64), (64, 64, size))))


def bound(dtype: str, kept: int | None = None, terms: int = 1) -> float:
    """The error that rounding may cause, as a share of the largest result.

    kept: the bits that products keep, by default those of sums. terms: of the sum; its error grows with their root.
    """
    growth = max(1.0, (terms / SHORT_SUM) ** 0.5)
    if dtype == "float64":  # the formula is rounded as well
        return float(ROUNDINGS * TERMS * growth * 2.0 ** -BITS[dtype])
    return float(ROUNDINGS * 2.0 ** -BITS[dtype] + TERMS * growth * 2.0 ** -(kept or BITS["float32"]))


def compare_results(
    rows: Table,
    case: str,
    dtype: str,
    found: Mapping[str, paddle.Tensor],
    exact: Mapping[str, np.ndarray],
    kept: int | None,
    terms: int = 1,
) -> None:
    """Add a row for each name in `exact`: the error in units of the bound. The control is shifted by one element.

    terms: of the longest sum.
    """
    for name, want in exact.items():
        unit = bound(dtype, kept, terms) * np.abs(want).max()
        got = found[name].astype("float64").numpy()
        rows.close(f"{case}, {name}, {dtype}", got / unit, want / unit, atol=1.0, control=np.roll(want, 1, axis=-1) / unit)


def linear_rows(rows: Table, shapes: Sequence[tuple[int, int, int]], dtype: str, kept: int | None, seed: int) -> None:
    """Rows: the result and both gradients of a linear layer of each shape (rows, inputs, outputs)."""
    for index, (count, inputs, outputs) in enumerate(shapes):
        rng = np.random.default_rng([seed, index])
        shape = (count, inputs), (inputs, outputs), (count, outputs)
        (x, a), (weight, b), (upstream, g) = (on_device(rng.standard_normal(each, "float32"), dtype) for each in shape)
        x.stop_gradient = weight.stop_gradient = False
        result = F.linear(x, weight)
        gradients = paddle.grad(result, [x, weight], grad_outputs=upstream)
        found = dict(zip(("result", "gradient of x", "gradient of weight"), (result, *gradients), strict=True))
        exact = dict(zip(found, kernels.linear(a, b, g), strict=True))
        compare_results(
            rows, f"[{count}, {inputs}] @ [{inputs}, {outputs}]", dtype, found, exact, kept, max(count, inputs, outputs)
        )


def chunk_rows(rows: Table, outputs: int, dtype: str, kept: int | None, seed: int) -> None:
    """A row: a wide output computed as a whole equals the same in chunks of 16,384 columns."""
    rng, chunk = np.random.default_rng(seed), 1 << 14
    (x, _), (weight, _) = (on_device(rng.standard_normal(each, "float32"), dtype) for each in ((2, 4), (4, outputs)))
    whole = F.linear(x, weight)
    parts = [F.linear(x, weight[:, start : start + chunk]) for start in range(0, outputs, chunk)]
    exact = {"whole against chunks": paddle.concat(parts, axis=1).astype("float64").numpy()}
    compare_results(rows, f"{outputs} outputs", dtype, {"whole against chunks": whole}, exact, kept)


def rows_of_batches(rows: Table, count: int, dtype: str, kept: int | None, seed: int) -> None:
    """Rows: softmax, norm, embedding and batched products of `count` rows of 8 elements."""
    rng = np.random.default_rng([seed, count])
    (x, a), (weight, b) = (on_device(rng.standard_normal(shape, "float32"), dtype) for shape in ((count, 8), (8, 8)))
    powers = np.exp(a - a.max(axis=1, keepdims=True))
    tokens = rng.integers(0, 8, count)
    found = {
        "softmax": F.softmax(x),
        "layer norm": F.layer_norm(x, [8], weight=weight[0], epsilon=2.0**-10),
        "embedding": F.embedding(paddle.to_tensor(tokens), weight),
        "bmm": paddle.bmm(x.reshape([count, 1, 8]), weight.unsqueeze(0).expand([count, 8, 8])),
        "column sums": x.sum(axis=0),
    }
    exact = {
        "softmax": powers / powers.sum(axis=1, keepdims=True),
        "layer norm": kernels.layer_norm(a, b[0], 2.0**-10, a)[0],
        "embedding": b[tokens],
        "bmm": (a @ b)[:, None],
        "column sums": a.sum(axis=0),
    }
    compare_results(rows, f"{count} rows", dtype, found, exact, kept, count)
