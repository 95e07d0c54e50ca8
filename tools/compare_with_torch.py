"""Compares the formulas of operators in xpulab/reference/operators.py with torch, in double precision, with their gradients.

    python tools/compare_with_torch.py    # in an environment with torch, numpy and what xpulab/reference imports; no Paddle

Chapter 17, `xpulab shapes` and `xpulab search` compare Paddle with these formulas. A formula that is wrong as Paddle is would
show nothing. Maintainers run it when a formula changes; nobody else needs torch.
Exit codes: 0 when all agree, 1 when one does not (each is printed), 2 without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # xpulab is not installed where torch is

from xpulab.reference.operators import AXES, FUNCTIONS, PAIRS, normalized, rotated, slope_of_normalized

try:
    import torch  # type: ignore[import-not-found]
except ImportError:
    print("no torch here: python -m venv torch && torch/bin/pip install torch numpy", file=sys.stderr)
    sys.exit(2)

F = torch.nn.functional

TOLERANCE = 1e-11
"""Relative, and absolute: both sides round in double precision, and exponentials of 30 lose some digits."""

EPSILON = 1e-5

Values = dict[str, np.ndarray]

RNG = np.random.default_rng(0)
SHAPES = [(6, 5), (7,), (3, 4, 5), (1, 1), (2, 257)]

OF_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pow 2": lambda x: x**2,
    "pow 3": lambda x: x**3,
    "scale": lambda x: 0.5 * x + 3,
    "clip": lambda x: torch.clip(x, -0.75, 1.25),
    "log_sigmoid": F.logsigmoid,
    "gelu, approximate": lambda x: F.gelu(x, approximate="tanh"),
}
OF_PAIRS: dict[str, Callable[..., Any]] = {
    **{"==": torch.eq, "!=": torch.ne, "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge},
    "not (x or y)": lambda x, y: ~torch.logical_or(x, y),
    "swiglu": lambda x, y: F.silu(x) * y,
}
OF_AXES: dict[str, Callable[..., Any]] = {
    "max": torch.amax,
    "min": torch.amin,
    "norm": torch.linalg.vector_norm,
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "cumsum": torch.cumsum,
}
"""Torch's function where it has another name, or takes other arguments."""


def by_name(name: str, table: dict[str, Callable[..., Any]]) -> Callable[..., Any] | None:
    """Torch's function of this name, or None."""
    return table.get(name) or getattr(torch, name, None) or getattr(F, name, None)


def of_torch(call: Callable[..., Any], given: list[np.ndarray], weight: np.ndarray, differentiable: bool) -> Values:
    """The result, and the gradients of sum(result * weight)."""
    tensors = [torch.tensor(array, requires_grad=differentiable) for array in given]
    result = call(*tensors)
    found = {"result": result.detach().double().numpy()}
    if differentiable:
        (result * torch.tensor(weight).reshape(result.shape)).sum().backward()
        found |= {f"gradient {place}": tensor.grad.numpy() for place, tensor in enumerate(tensors, start=1)}
    return found


def drawn(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Values of these kinds: normal, with ties and zeros, far from zero."""
    yield RNG.standard_normal(shape)
    yield RNG.integers(-2, 3, shape).astype("float64")
    yield 30 + RNG.standard_normal(shape)


def functions() -> Iterator[tuple[str, Values, Values]]:
    for name, function in FUNCTIONS.items():
        if call := by_name(name, OF_FUNCTIONS):
            for x in (each for shape in SHAPES for each in drawn(shape)):
                x = np.abs(x) + 0.25 if function.is_of_positives else x
                weight = RNG.uniform(0.5, 1.5, x.shape)
                ours = {"result": function.value(x), "gradient 1": weight * function.slope(x)}
                yield name, ours, of_torch(call, [x], weight, True)


def pairs() -> Iterator[tuple[str, Values, Values]]:
    for name, pair in PAIRS.items():
        if call := by_name(name, OF_PAIRS):
            for x, y in ((x, y) for shape in SHAPES for x in drawn(shape) for y in drawn(shape)):
                y = np.where(y == 0, 3, y) if name in ("divide", "floor_divide", "remainder") else y
                weight = RNG.uniform(0.5, 1.5, x.shape)
                ours = {"result": np.asarray(pair.value(x, y), "float64")}
                for place, slope in enumerate(pair.slopes(x, y) if pair.slopes else (), start=1):
                    ours[f"gradient {place}"] = weight * slope
                yield name, ours, of_torch(call, [x, y], weight, bool(pair.slopes))


def along_axes() -> Iterator[tuple[str, Values, Values]]:
    for name, along in AXES.items():
        if call := by_name(name, OF_AXES):
            for x, axis in ((x, axis) for shape in SHAPES for x in drawn(shape) for axis in range(len(shape))):
                x = np.where(x == 0, 0.5, x)[..., :9] if name == "prod" else x  # its formula is without zeros
                weight = RNG.uniform(0.5, 1.5, along.value(x, axis).shape)
                ours = {"result": along.value(x, axis), "gradient 1": along.slope(x, axis, weight)}
                named = {"dim": axis, **({"keepdim": True} if along.reduces else {})}
                yield name, ours, of_torch(partial(call, **named), [x], weight, True)


def of_rows() -> Iterator[tuple[str, Values, Values]]:
    for x in (each for shape in SHAPES for each in drawn(shape)):
        weight = RNG.uniform(0.5, 1.5, x.shape)
        for name, is_centered, call in (("layer norm", True, F.layer_norm), ("RMS norm", False, F.rms_norm)):
            normal, spread, _ = normalized(x, (-1,), EPSILON, is_centered)
            ours = {"result": normal, "gradient 1": slope_of_normalized(normal, spread, weight, (-1,), is_centered)}
            yield name, ours, of_torch(partial(call, normalized_shape=x.shape[-1:], eps=EPSILON), [x], weight, True)
    heads, angles = RNG.standard_normal((2, 5, 3, 8)), RNG.uniform(-9, 9, (5, 1, 4))
    both = np.tile(angles, 2)
    turned = torch.complex(*map(torch.tensor, np.split(heads, 2, axis=-1))) * torch.exp(1j * torch.tensor(angles))
    yield (
        "rotary positions",
        {"result": rotated(heads, np.cos(both), np.sin(both))},
        {"result": torch.cat([turned.real, turned.imag], dim=-1).numpy()},
    )


def main() -> int:
    compared, wrong = dict[str, int](), dict[str, str]()
    for name, ours, theirs in (each for part in (functions, pairs, along_axes, of_rows) for each in part()):
        compared[name] = compared.get(name, 0) + 1
        for what, right in theirs.items():
            if not np.allclose(np.reshape(ours[what], right.shape), right, rtol=TOLERANCE, atol=TOLERANCE):
                wrong[name] = f"{what} differs by {np.abs(np.reshape(ours[what], right.shape) - right).max():.2g}"
    print(f"torch {torch.__version__}: {sum(compared.values())} comparisons of {len(compared)} operators")
    print("torch has none of:", ", ".join(sorted({*FUNCTIONS, *PAIRS, *AXES} - {*compared})) or "-")
    print(*(f"WRONG {name}: {how}" for name, how in wrong.items()), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
