"""Fused operators of language models, forward and backward: what they compute, and their formulas in double precision.

Not every device has a kernel for each of them: a row is skipped where the device is known to have none.
Offered: FUSED, fused_rows, FROZEN, frozen_rows, rotary_rows_of_nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import paddle
import paddle.incubate.nn.functional as fused
import paddle.nn.functional as F
from paddle.distributed.fleet.utils import recompute
from paddle.incubate.operators.softmax_mask_fuse_upper_triangle import softmax_mask_fuse_upper_triangle

from xpulab.chapters.numerics.llm_kernels import bound, compare_results
from xpulab.chapters.shared.missing_kernels import results_of
from xpulab.chapters.shared.precision import on_device
from xpulab.checks.table import Table
from xpulab.reference import kernels

EPSILON = 2.0**-10
"""Of the norms: exact in every type."""

POSITIONS, SIZE = 17, 64
"""Positions, and the size of a head, of rotary positions."""


@dataclass(frozen=True)
class FusedOperator:
    """A fused operator and its formula.

    kernel: the name of its kernel in Paddle.
    shapes: of its inputs.
    compute: from tensors of these shapes to the result.
    formula: from arrays and the gradient of the result to [result, a gradient for each input].
    trains: whether Paddle defines a gradient; operators for inference have none.
    """

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    compute: Callable[..., paddle.Tensor]
    formula: Callable[..., Sequence[np.ndarray]]
    trains: bool = True


def _angles() -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, size] of rotary positions."""
    frequencies = 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
    angles = np.tile(np.outer(np.arange(POSITIONS), frequencies), 2)
    return np.cos(angles), np.sin(angles)


def _turn(query: paddle.Tensor, key: paddle.Tensor | None = None, value: paddle.Tensor | None = None) -> list[paddle.Tensor]:
    """Queries, and keys and values if there are any, turned by their positions."""
    cosine, sine = (paddle.to_tensor(each[None, :, None, :]).astype(query.dtype) for each in _angles())
    turned = fused.fused_rotary_position_embedding(query, key, value, sin=sine, cos=cosine, use_neox_rotary_style=False)
    return [each for each, given in zip(turned, (query, key, value), strict=True) if given is not None]


def _rope(*heads: paddle.Tensor) -> paddle.Tensor:
    return paddle.concat(_turn(*heads))


def _upper_triangle(scores: np.ndarray, g: np.ndarray) -> Sequence[np.ndarray]:
    hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
    shown = np.where(hidden, -np.inf, scores)
    powers = np.exp(shown - shown.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights, weights * (g - (g * weights).sum(axis=-1, keepdims=True))


def _biased(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, g: np.ndarray) -> Sequence[np.ndarray]:
    result, of_x, of_weight = kernels.linear(x, weight, g)
    return result + bias, of_x, of_weight, g.sum(axis=0)


def _turned(*given: np.ndarray) -> Sequence[np.ndarray]:
    (cosine, sine), (*heads, g) = _angles(), given
    return kernels.rotated(np.concatenate(heads), cosine, sine), *np.split(kernels.rotated(g, cosine, -sine), len(heads))


def _attended(query: np.ndarray, key: np.ndarray, value: np.ndarray, g: np.ndarray) -> Sequence[np.ndarray]:
    return kernels.attention(query, key, value, np.tril(np.ones((POSITIONS, POSITIONS), bool)), g)


FUSED: dict[str, FusedOperator] = {
    "fused_rms_norm": FusedOperator(
        "fused_rms_norm_quant",
        ((33, 96), (96,)),
        lambda x, weight: fused.fused_rms_norm(x, weight, paddle.zeros_like(weight), EPSILON, 1)[0],
        lambda x, weight, g: kernels.rms_norm(x, weight, EPSILON, g),
    ),
    "fused_layer_norm": FusedOperator(
        "fused_bias_residual_layernorm",
        ((33, 96), (96,)),
        lambda x, weight: fused.fused_layer_norm(x, weight, paddle.zeros_like(weight), EPSILON, begin_norm_axis=1)[0],
        lambda x, weight, g: kernels.layer_norm(x, weight, EPSILON, g),
        trains=False,
    ),
    "swiglu": FusedOperator("swiglu", ((33, 96), (33, 96)), lambda gate, up: F.swiglu(gate, up), kernels.swiglu),
    "fused_linear": FusedOperator(
        "fused_gemm_epilogue", ((33, 96), (96, 40), (40,)), lambda *given: fused.fused_linear(*given), _biased
    ),
    "fused_matmul_bias": FusedOperator(
        "fused_gemm_epilogue", ((33, 96), (96, 40), (40,)), lambda *given: fused.fused_matmul_bias(*given), _biased
    ),
    "softmax_mask_fuse_upper_triangle": FusedOperator(
        "fused_softmax_mask_upper_triangle", ((2, 3, 32, 32),), softmax_mask_fuse_upper_triangle, _upper_triangle
    ),
    "fused_dropout_add, p = 0": FusedOperator(
        "fused_dropout_add",
        ((33, 96), (33, 96)),
        lambda x, y: fused.fused_dropout_add(x, y, p=0.0),
        lambda x, y, g: (x + y, g, g),
    ),
}
"""By name the fused operators. The shapes have no power of two where a kernel could rely on one."""


FROZEN: dict[str, FusedOperator] = {
    **{name: each for name, each in FUSED.items() if each.trains and len(each.shapes) > 1},
    "fused_rotary_position_embedding": FusedOperator(
        "fused_rotary_position_embedding", ((2, POSITIONS, 3, SIZE),) * 3, _rope, _turned
    ),
    "linear": FusedOperator("linear", ((33, 96), (96, 40), (40,)), lambda *given: F.linear(*given), _biased),
    "layer_norm": FusedOperator(
        "layer_norm",
        ((33, 96), (96,)),
        lambda x, weight: F.layer_norm(x, [96], weight=weight, epsilon=EPSILON),
        lambda x, weight, g: kernels.layer_norm(x, weight, EPSILON, g),
    ),
    "attention": FusedOperator(
        "flash_attn",
        ((2, POSITIONS, 3, SIZE),) * 3,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        _attended,
    ),
}
"""By name the operators of a layer with several inputs, of which some may be frozen, as in fine-tuning with LoRA."""

_WAYS: dict[str, Callable[..., paddle.Tensor]] = {
    "kept": lambda function, *inputs: function(*inputs),
    "recomputed": lambda function, *inputs: recompute(function, *inputs, use_reentrant=True),
    "recomputed without reentrant": lambda function, *inputs: recompute(function, *inputs, use_reentrant=False),
}
"""By name how an operator is called: what it saves is kept for the backward pass, or computed again."""


def fused_rows(rows: Table, dtype: str, kept: int | None, seed: int) -> None:
    """Rows: the result and the gradients of each fused operator in this type; skipped where the device is known to lack it."""
    for name, operator in FUSED.items():
        rng = np.random.default_rng(seed)
        drawn = [on_device(rng.standard_normal(shape, "float32"), dtype) for shape in operator.shapes]
        inputs, arrays = [tensor for tensor, _ in drawn], [array for _, array in drawn]
        for each in inputs:
            each.stop_gradient = False
        found = results_of(rows, f"{name}, result, {dtype}", partial(_result, operator, inputs), operator.kernel, dtype)
        if not found:
            continue
        upstream, g = on_device(rng.standard_normal(found[0].shape, "float32"), dtype)
        if operator.trains:
            found += results_of(
                rows,
                f"{name}, gradients, {dtype}",
                partial(paddle.grad, found, inputs, grad_outputs=[upstream]),
                operator.kernel,
                dtype,
                "gradient",
            )
        names = ["result", *(f"gradient {index}" for index in range(1, len(found)))]
        exact = dict(zip(names, operator.formula(*arrays, g), strict=False))  # without gradients where there are none
        compare_results(rows, name, dtype, dict(zip(names, found, strict=True)), exact, kept)


def _result(operator: FusedOperator, inputs: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Currently, fused_dropout_add")  # falls back to two operators
        return [operator.compute(*inputs)]


def frozen_rows(rows: Table, dtype: str, kept: int | None, seed: int) -> None:
    """Rows: each operator of FROZEN with every choice of inputs that are frozen; a row has all of _WAYS, one after another.

    What learns has the gradient that it has when all inputs learn. What is frozen has none, which counts as zeros. The control
    is shifted by one element.
    """
    for name, operator in FROZEN.items():
        rng = np.random.default_rng(seed)
        drawn = [on_device(rng.standard_normal(shape, "float32"), dtype) for shape in operator.shapes]
        inputs, arrays = [tensor for tensor, _ in drawn], [array for _, array in drawn]
        result = results_of(rows, f"{name}, result, {dtype}", partial(_result, operator, inputs), operator.kernel, dtype)
        if not result:
            continue
        upstream, g = on_device(rng.standard_normal(result[0].shape, "float32"), dtype)
        exact = operator.formula(*arrays, g)[1:]
        units = [bound(dtype, kept) * np.abs(each).max() for each in exact]
        for learns in product((True, False), repeat=len(inputs)):
            if all(learns) or not any(learns):
                continue
            case, train = f"{name}, {_format_frozen(learns)}, {dtype}", partial(_gradients, operator, inputs, upstream, learns)
            if found := results_of(rows, case, train, operator.kernel, dtype, "gradient"):
                want = [each * has_one for each, has_one in zip(exact, learns, strict=True)] * len(_WAYS)
                got = [each.astype("float64").numpy() for each in found]
                measured, expected = (
                    np.concatenate([each.ravel() / unit for each, unit in zip(arrays, units * len(_WAYS), strict=True)])
                    for arrays in (got, want)
                )
                rows.close(case, measured, expected, atol=1.0, control=np.roll(expected, 1))


def _gradients(
    operator: FusedOperator, inputs: Sequence[paddle.Tensor], upstream: paddle.Tensor, learns: Sequence[bool]
) -> list[paddle.Tensor]:
    """By way the gradients of the inputs: zeros for a frozen one without, NaN for a frozen one with and for another without."""
    found = []
    for call in _WAYS.values():
        copies = [tensor.detach() for tensor in inputs]
        for tensor, has_one in zip(copies, learns, strict=True):
            tensor.stop_gradient = not has_one
        call(lambda *given: _result(operator, given)[0], *copies).backward(upstream)
        for tensor, has_one in zip(copies, learns, strict=True):
            gradient = tensor.grad if has_one == (tensor.grad is not None) else paddle.full_like(tensor, np.nan)
            found.append(paddle.zeros_like(tensor) if gradient is None else gradient)
    return found


def _format_frozen(learns: Sequence[bool]) -> str:
    """ "input 1 is frozen", "inputs 1 and 3 are frozen"."""
    numbers = [str(number) for number, has_one in enumerate(learns, 1) if not has_one]
    return f"inputs {' and '.join(numbers)} are frozen" if len(numbers) > 1 else f"input {numbers[0]} is frozen"


_HEADS = {
    "queries alone": (3,),
    "keys without elements": (3, 0, 3),
    "values without elements": (3, 3, 0),
    "keys and values without elements": (3, 0, 0),
}
"""By name how many heads queries, keys and values have."""


def rotary_rows_of_nothing(rows: Table, dtype: str, kept: int | None, seed: int) -> None:
    """Rows: rotary positions where keys or values have no element: shapes, then values and gradients of what has elements.

    In the controls shapes have an axis more, and elements are shifted by one.
    """
    cosine, sine = _angles()
    for name, heads in _HEADS.items():
        rng, case, kernel = np.random.default_rng(seed), f"rotary positions, {name}", "fused_rotary_position_embedding"
        shapes = [(2, POSITIONS, count, SIZE) for count in heads]
        drawn = [on_device(rng.standard_normal(shape, "float32"), dtype) for shape in (*shapes, *shapes)]
        inputs, slopes = ([tensor for tensor, _ in half] for half in (drawn[: len(heads)], drawn[len(heads) :]))
        arrays, exact_slopes = ([array for _, array in half] for half in (drawn[: len(heads)], drawn[len(heads) :]))
        for each in inputs:
            each.stop_gradient = False
        turned = results_of(rows, f"{case}, {dtype}", partial(_turn, *inputs), kernel, dtype)
        if not turned:
            continue
        want, control = [list(shape) for shape in shapes], [[*shape, 1] for shape in shapes]
        rows.equal(f"{case}, shapes, {dtype}", [list(each.shape) for each in turned], want, control=control)
        full = {what: place for place, what in enumerate(("queries", "keys", "values")[: len(heads)]) if heads[place]}
        results, wanting, upstream = ([each[place] for place in full.values()] for each in (turned, inputs, slopes))
        slope_of = partial(paddle.grad, results, wanting, grad_outputs=upstream)
        gradients = results_of(rows, f"{case}, gradients, {dtype}", slope_of, kernel, dtype, "gradient")
        exact = {what: kernels.rotated(arrays[place], cosine, sine) for what, place in full.items()}
        compare_results(rows, case, dtype, dict(zip(full, results, strict=True)), exact, kept)
        if gradients:
            exact = {what: kernels.rotated(exact_slopes[place], cosine, -sine) for what, place in full.items()}
            compare_results(rows, f"{case}, gradient", dtype, dict(zip(full, gradients, strict=True)), exact, kept)
