"""The operators of a training step in numpy, in double precision, by the names that they have in paddle._C_ops.

    formula = FORMULAS["matmul"]
    (product,) = formula.results(x, y, transpose_y=True)

Arguments are those of the operator, in its order, with arrays in place of tensors; types are NamedType. What the table of
xpulab.reference.operators has is taken from there; here is what operators have besides: attributes, several results.
Source of orders and defaults: paddle/phi/ops/yaml/ops.yaml of release 3.3 and the calls that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xpulab.operators.calls import NamedType
from xpulab.operators.movements import MOVEMENTS
from xpulab.reference import operators
from xpulab.reference.operators import AXES, FUNCTIONS, PAIRS

Kind = Literal["exact", "positive", "smooth", "composed", "rows", "shares"]


@dataclass(frozen=True)
class Formula:
    """An operator in numpy.

    function: takes the operator's arguments, returns an array or a tuple of arrays, None for a result that is not compared.
    kind: how errors are bounded. "exact": results are elements of the inputs, or integers. "positive": the function of absolute
    values is the sum of the absolute terms. "smooth": by how results change when the inputs change a little.
    "composed": the same, of terms as large as 1 and as the input, which may cancel. "rows": the same
    for functions with sums in them, whose rounding grows with their length. "shares": those whose small results are as exact.
    """

    function: Callable[..., Any]
    kind: Kind

    def results(self, *arguments: Any, **named: Any) -> tuple[Any, ...]:
        """The results in the order of the operator's."""
        found = self.function(*arguments, **named)
        return found if isinstance(found, tuple) else (found,)


FORMULAS: dict[str, Formula] = {}
"""By operator its formula."""


def _register(kind: Kind, functions: Mapping[str, Callable]) -> None:
    FORMULAS.update({name: Formula(function, kind) for name, function in functions.items()})


def _single(number: float) -> float:
    """An attribute of type float in C++: single precision for every type of tensor."""
    return float(np.float32(number))


# ---------------------------------------------------------------------------------------------------- element by element

_WITH_ATTRIBUTES = ("pow", "scale", "clip", "gelu", "softplus")
"""Kernels whose functions in the table of operators are those of one value of their attributes."""
_CANCEL = ("log_sigmoid",)
"""Those whose tails are differences of larger numbers in single precision."""
_METHODS = {
    **{"sub": "subtract", "mul": "multiply", "truediv": "divide", "div": "divide", "radd": "add", "rmul": "multiply"},
    **{"eq": "equal", "ne": "not_equal", "lt": "less_than", "le": "less_equal", "gt": "greater_than", "ge": "greater_equal"},
    **{"floordiv": "floor_divide", "mod": "remainder"},
}
"""By method of tensors the operator that it calls."""


def _named(function: Callable) -> Callable:
    """The function, which also takes its arguments as x and y."""
    return lambda *given, **named: function(*given, *(named[name] for name in ("x", "y") if name in named))


def _from_the_table() -> None:
    """The operators of one and of two numbers. Those that only choose among their inputs, or have no slope, are exact."""
    for name, function in FUNCTIONS.items():
        if function.kernel not in _WITH_ATTRIBUTES:
            kind: Kind = "exact" if name in ("abs", "relu") else "composed" if name in _CANCEL else "smooth"
            _register(kind, dict.fromkeys((name, function.kernel), _named(function.value)))
    for name, pair in reversed(PAIRS.items()):  # the first one of a kernel is the plain one
        kind = "exact" if (pair.slopes is None and name != "remainder") or name in ("maximum", "minimum") else "smooth"
        _register(kind, {pair.kernel: _named(pair.value)})
    FORMULAS.update({method: FORMULAS[name] for method, name in _METHODS.items()})


_from_the_table()
_register("exact", MOVEMENTS)
_register("exact", {"assign": np.copy, "clone": np.copy, "logical_not": np.logical_not, "bitwise_not": np.invert})


def _scale(x: Any, factor: Any = 1.0, bias: float = 0.0, bias_after_scale: bool = True) -> Any:
    return x * factor + bias if bias_after_scale else (x + bias) * factor


_register(
    "smooth",
    {
        **{"scale": _scale, "clip": np.clip},
        "swiglu": lambda x, y=None: PAIRS["swiglu"].value(*(np.split(x, 2, axis=-1) if y is None else (x, y))),
        "rsub": lambda x, y: y - x,
        "pow": lambda x, y: np.asarray(x) ** y,
    },
)


def _gelu(x: Any, approximate: bool = False, *_others: Any) -> Any:
    return FUNCTIONS["gelu, approximate" if approximate else "gelu"].value(x)


_register("composed", {"gelu": _gelu})

# -------------------------------------------------------------------------------------------------------- types and numbers


def _of_type(array: Any, dtype: Any) -> np.ndarray:
    """The array after a conversion to the type: real numbers stay in double precision, because rounding is tolerated."""
    name = dtype.name if isinstance(dtype, NamedType) else "float"
    if name.startswith(("int", "uint")):
        return np.trunc(np.asarray(array)).astype(name)
    return np.asarray(array).astype(bool if name == "bool" else "float64")


def _full(shape: Any, value: Any, dtype: Any, _place: Any) -> Any:
    if isinstance(value, str):
        value = float(value) if dtype == NamedType("float64") else _single(float(value))
    return _of_type(np.full([int(each) for each in shape], value), dtype)


def _arange(start: Any, end: Any, step: Any, dtype: Any, *_others: Any) -> Any:
    first, last, by = (np.asarray(each).reshape(-1)[0] for each in (start, end, step))
    return _of_type(np.arange(first, last, by), dtype)


_register(
    "exact",
    {
        "cast": _of_type,
        "full": lambda *given: _full(*given[-4:]),  # full_ has the result before them
        "full_like": lambda x, value, dtype, *_others: _of_type(np.full(np.shape(x), value), dtype),
        "arange": _arange,
    },
)

# -------------------------------------------------------------------------------------------------- products and reductions


def _matmul(x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Any:
    x = np.swapaxes(x, -1, -2) if transpose_x and x.ndim > 1 else x
    return x @ (np.swapaxes(y, -1, -2) if transpose_y and y.ndim > 1 else y)


def _axes(axis: Any) -> Any:
    if isinstance(axis, list | tuple):
        return tuple(axis) or None
    return None if axis is None else int(axis)


def _reduction(name: str) -> Callable:
    def reduced(x: Any, axis: Any = None, keepdim: bool = False, *_others: Any) -> Any:
        result = AXES[name].value(np.asarray(x), _axes(axis))
        return result if keepdim else np.squeeze(result, _axes(axis))

    return reduced


def _sum(x: Any, axis: Any = None, dtype: Any = None, keepdim: bool = False) -> Any:
    total = _reduction("sum")(x, axis, keepdim)
    return _of_type(total, dtype) if isinstance(dtype, NamedType) else total


_register(
    "positive",
    {
        "matmul": _matmul,
        "bmm": _matmul,
        "linear": lambda x, weight, bias=None: x @ weight + (0 if bias is None else bias),
        "sum": _sum,
        **dict.fromkeys(("mean", "mean_all"), _reduction("mean")),
        "squared_l2_norm": lambda x: np.square(x).sum().reshape(1),
    },
)
_register("exact", {"max": _reduction("max"), "min": _reduction("min")})

# ---------------------------------------------------------------------------------------------- normalization and losses


def _normalized(x: Any, begin_norm_axis: int, epsilon: float, weight: Any, bias: Any, is_centered: bool) -> Any:
    result = operators.normalized(x, tuple(range(begin_norm_axis, x.ndim)), _single(epsilon), is_centered)[0]
    shape = x.shape[begin_norm_axis:]
    return result * (1 if weight is None else weight.reshape(shape)) + (0 if bias is None else bias.reshape(shape))


def _layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, begin_norm_axis: int = 1) -> Any:
    return _normalized(x, begin_norm_axis, epsilon, weight, bias, True), None, None


def _rms_norm(x: Any, weight: Any = None, normalized_shape: Any = (), epsilon: float = 1e-5) -> Any:
    return _normalized(x, x.ndim - max(1, len(normalized_shape)), epsilon, weight, None, False), None


def _cross_entropy(
    logits: Any,
    label: Any,
    soft_label: bool = False,
    use_softmax: bool = True,
    numeric_stable_mode: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
) -> Any:
    probabilities = operators.softmax(logits, axis) if use_softmax else logits
    logarithms = operators.log_softmax(logits, axis) if use_softmax else np.log(logits)
    if soft_label:
        return probabilities, -(label * logarithms).sum(axis=axis, keepdims=True)
    label = label if label.ndim == logits.ndim else np.expand_dims(label, axis)
    counted = label != ignore_index
    loss = -np.take_along_axis(logarithms, np.where(counted, label, 0), axis)
    return probabilities, np.where(counted, loss, 0.0)


def _log_loss(chance: Any, label: Any, epsilon: float) -> Any:
    return -label * np.log(chance + epsilon) - (1 - label) * np.log(1 - chance + epsilon)


_register("composed", {"log_loss": _log_loss})
_register(
    "rows",
    {
        "clip_by_norm": lambda x, largest: x * (largest / max(largest, float(np.sqrt(np.square(x).sum())))),
        "log_softmax": lambda x, axis=-1, *_others: operators.log_softmax(x, axis),
        "logsumexp": _reduction("logsumexp"),
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "cross_entropy_with_softmax": _cross_entropy,
    },
)

_register("shares", {"softmax": lambda x, axis=-1, *_others: operators.softmax(x, axis)})

# ----------------------------------------------------------------------------------------------------------------- optimizer


def _adamw(
    weight: Any,
    gradient: Any,
    rate: Any,
    first: Any,
    second: Any,
    largest: None,
    power1: Any,
    power2: Any,
    master: Any = None,
    skip_update: Any = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    share_of_rate: float = 1.0,
    decay: float = 0.01,
    with_decay: bool = True,
    *_others: Any,
) -> Any:
    """Loshchilov and Hutter 2019, algorithm 2; the powers are those of this step. Without amsgrad."""
    if largest is not None or skip_update is not None:
        raise NotImplementedError("adamw with amsgrad or skip_update")
    rate, decay = rate * _single(share_of_rate), _single(decay)
    before = weight if master is None else master
    first, second = beta1 * first + (1 - beta1) * gradient, beta2 * second + (1 - beta2) * gradient**2
    change = (first / (1 - power1)) / (np.sqrt(second / (1 - power2)) + epsilon)
    after = before * (1 - rate * decay if with_decay else 1) - rate * change
    return after, first, second, None, power1 * beta1, power2 * beta2, None if master is None else after


_register("smooth", {"adamw": _adamw})
