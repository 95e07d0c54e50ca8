"""Linear layers at the sizes of large language models, forward and backward, beside double precision.

Here the bound is a share of the largest result, which is tighter for long sums than one for each element.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.kept_bits import Shape
from xpulab.chapters.shared.precision import on_device
from xpulab.checks.compared import Compared, add_row
from xpulab.checks.table import Table
from xpulab.reference.bounds import share_of_largest

SIZES = {
    "smoke": ((8, 512, 64),),
    "quick": ((8, 4096, 64), (8, 11008, 64), (4096, 64, 64), (8, 64, 11008), (2, 4, 151_936), (2, 4, 248_320)),
    "standard": ((8, 4096, 4096), (8, 11008, 1024), (4096, 256, 256), (4, 64, 151_936), (4, 64, 248_320)),
}
"""By level (rows, inputs, outputs) of linear layers: hidden sizes 4096 and 11008, vocabularies of 151,936 and 248,320."""


def linear_rows(rows: Table, shapes: Iterable[Shape], dtype: str, kept: int | None, parts: int | None, seed: int) -> None:
    """A row for a linear layer of each shape (rows, inputs, outputs): result and both gradients; the control is shifted.

    kept, parts: as for bounds.share_of_largest.
    """
    for index, (count, inputs, outputs) in enumerate(shapes):
        rng = np.random.default_rng([seed, index])
        shape = (count, inputs), (inputs, outputs), (count, outputs)
        (x, a), (weight, b), (upstream, g) = (on_device(rng.standard_normal(each, "float32"), dtype) for each in shape)
        x.stop_gradient = weight.stop_gradient = False
        result = F.linear(x, weight)
        found = (result, *paddle.grad(result, [x, weight], grad_outputs=upstream))
        right = dict(zip(("result", "gradient of x", "gradient of weight"), (a @ b, g @ b.T, a.T @ g), strict=True))
        got = {name: each.astype("float64").numpy() for name, each in zip(right, found, strict=True)}
        share = share_of_largest(dtype, kept, max(count, inputs, outputs), parts)
        bound = {name: share * np.abs(each).max() for name, each in right.items()}
        wrong = {name: np.roll(each, 1, axis=-1) for name, each in right.items()}
        add_row(rows, f"[{count}, {inputs}] @ [{inputs}, {outputs}], {dtype}", Compared(got, right, bound, wrong))
