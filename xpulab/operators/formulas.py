"""The operators of a training step in numpy, in double precision, by the names that they have in paddle._C_ops.

    formula = FORMULAS["matmul"]
    (product,) = formula.results(x, y, transpose_y=True)

Arguments are those of the operator, in its order, with arrays in place of tensors; types are NamedType. Source of orders and
defaults: paddle/phi/ops/yaml/ops.yaml of release 3.3 and the calls that were recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xpulab.operators.calls import NamedType

Kind = Literal["exact", "positive", "smooth", "rows"]


@dataclass(frozen=True)
class Formula:
    """An operator in numpy.

    function: takes the operator's arguments, returns an array or a tuple of arrays, None for a result that is not compared.
    kind: how errors are bounded. "exact": results are elements of the inputs, or integers. "positive": the function of absolute
    values is the sum of the absolute terms. "smooth": by how results change when the inputs change a little.
    "rows": the same for functions with sums in them, whose rounding grows with their length.
    """

    function: Callable[..., Any]
    kind: Kind

    def results(self, *arguments: Any, **named: Any) -> tuple[Any, ...]:
        """The results in the order of the operator's."""
        found = self.function(*arguments, **named)
        return found if isinstance(found, tuple) else (found,)


FORMULAS: dict[str, Formula] = {}
"""By operator its formula."""


def formula(kind: Kind, *names: str) -> Callable[[Callable], Callable]:
    """Register the decorated function as the formula of these operators; by default of its own name."""

    def register(function: Callable) -> Callable:
        for name in names or (function.__name__.strip("_"),):
            FORMULAS[name] = Formula(function, kind)
        return function

    return register


def _single(number: float) -> float:
    """An attribute of type float in C++: single precision for every type of tensor."""
    return float(np.float32(number))


def number_of_type(array: Any, dtype: Any) -> np.ndarray:
    """The array after a conversion to the type: real numbers stay in double precision, because rounding is tolerated."""
    name = dtype.name if isinstance(dtype, NamedType) else "float"
    if name.startswith(("int", "uint")):
        return np.trunc(np.asarray(array)).astype(name)
    return np.asarray(array).astype(bool if name == "bool" else "float64")


# ---------------------------------------------------------------------------------------------------- element by element

_ERF = np.vectorize(math.erf, otypes=["float64"])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@formula("smooth", "gelu")
def _gelu(x: Any, approximate: bool = False) -> Any:
    if approximate:
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x * (1 + _ERF(x / math.sqrt(2))) / 2


@formula("smooth", "swiglu")
def _swiglu(x: Any, y: Any = None) -> Any:
    if y is None:
        x, y = np.split(x, 2, axis=-1)
    return x * _sigmoid(x) * y


@formula("smooth", "scale")
def _scale(x: Any, factor: Any = 1.0, bias: float = 0.0, bias_after_scale: bool = True) -> Any:
    return x * factor + bias if bias_after_scale else (x + bias) * factor


@formula("smooth", "clip")
def _clip(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


_OF_ONE: dict[str, Callable[[Any], Any]] = {
    **{"sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "square": np.square},
    **{"sigmoid": _sigmoid, "erf": _ERF, "silu": lambda x: x * _sigmoid(x), "rsqrt": lambda x: 1 / np.sqrt(x)},
    **{"reciprocal": lambda x: 1 / x, "logsigmoid": lambda x: -np.logaddexp(0, -x), "log1p": np.log1p},
}
_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("add", "radd"), np.add),
    **dict.fromkeys(("sub", "subtract"), np.subtract),
    "rsub": lambda x, y: y - x,
    **dict.fromkeys(("mul", "rmul", "multiply"), np.multiply),
    **dict.fromkeys(("div", "truediv", "divide"), np.true_divide),
    **dict.fromkeys(("rdiv", "rtruediv"), lambda x, y: y / x),
    "pow": lambda x, y: np.asarray(x) ** y,
    "rpow": lambda x, y: y ** np.asarray(x),
}
_EXACT_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    **{"maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin},
    **dict.fromkeys(("gt", "greater_than"), np.greater),
    **dict.fromkeys(("ge", "greater_equal"), np.greater_equal),
    **dict.fromkeys(("lt", "less_than"), np.less),
    **dict.fromkeys(("le", "less_equal"), np.less_equal),
    **dict.fromkeys(("eq", "equal"), np.equal),
    **dict.fromkeys(("ne", "not_equal"), np.not_equal),
    **{"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor},
    **{"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor},
    **dict.fromkeys(("floordiv", "floor_divide"), np.floor_divide),
    **dict.fromkeys(("mod", "remainder"), np.mod),
}
_EXACT_OF_ONE: dict[str, Callable[[Any], Any]] = {
    **{"abs": np.abs, "relu": lambda x: np.maximum(x, 0), "sign": np.sign, "floor": np.floor, "ceil": np.ceil},
    **{"logical_not": np.logical_not, "bitwise_not": np.invert, "isnan": np.isnan, "isinf": np.isinf},
    **{"isfinite": np.isfinite, "assign": np.copy, "clone": np.copy, "contiguous": np.copy, "neg": np.negative},
}


def _register(kind: Kind, functions: dict[str, Callable]) -> None:
    def ignoring_out(function: Callable) -> Callable:
        return lambda *given, out=None, **named: function(*given, *(named[name] for name in ("x", "y") if name in named))

    for name, function in functions.items():
        FORMULAS[name] = Formula(ignoring_out(function), kind)


_register("smooth", _OF_ONE)
_register("smooth", _OF_TWO)
_register("exact", _EXACT_OF_TWO)
_register("exact", _EXACT_OF_ONE)


@formula("exact")
def cast(x: Any, dtype: Any) -> Any:
    return number_of_type(x, dtype)


@formula("exact")
def where(condition: Any, x: Any, y: Any, out: None = None) -> Any:
    return np.where(condition, x, y)


@formula("exact")
def full(shape: Any, value: Any, dtype: Any, place: Any = None) -> Any:
    return number_of_type(np.full([int(each) for each in shape], value), dtype)


@formula("exact")
def full_like(x: Any, value: Any, dtype: Any, place: Any = None) -> Any:
    return number_of_type(np.full(np.shape(x), value), dtype)


@formula("exact")
def arange(start: Any, end: Any, step: Any, dtype: Any, place: Any = None, out: None = None) -> Any:
    first, last, by = (np.asarray(each).reshape(-1)[0] for each in (start, end, step))
    return number_of_type(np.arange(first, last, by), dtype)


# --------------------------------------------------------------------------------------------------------------- products


@formula("positive")
def matmul(x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False, out: None = None) -> Any:
    x = np.swapaxes(x, -1, -2) if transpose_x and x.ndim > 1 else x
    return x @ (np.swapaxes(y, -1, -2) if transpose_y and y.ndim > 1 else y)


@formula("positive", "bmm")
def _bmm(x: Any, y: Any, out: None = None) -> Any:
    return x @ y


FORMULAS["rmatmul"] = Formula(lambda x, y: y @ x, "positive")


@formula("positive")
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return x @ weight + (0 if bias is None else bias)


# ------------------------------------------------------------------------------------------------------------- reductions


def _axes(axis: Any) -> Any:
    if axis is None or (isinstance(axis, list | tuple) and not axis):
        return None
    return tuple(axis) if isinstance(axis, list | tuple) else int(axis)


@formula("positive", "mean", "mean_all")
def _mean(x: Any, axis: Any = None, keepdim: bool = False, out: None = None) -> Any:
    return np.asarray(x).mean(axis=_axes(axis), keepdims=keepdim)


@formula("positive", "sum")
def _sum(x: Any, axis: Any = None, dtype: Any = None, keepdim: bool = False, out: None = None) -> Any:
    total = np.asarray(x).sum(axis=_axes(axis), keepdims=keepdim)
    return number_of_type(total, dtype) if isinstance(dtype, NamedType) else total


@formula("exact", "max", "amax")
def _max(x: Any, axis: Any = None, keepdim: bool = False, out: None = None) -> Any:
    return np.asarray(x).max(axis=_axes(axis), keepdims=keepdim)


@formula("exact", "min", "amin")
def _min(x: Any, axis: Any = None, keepdim: bool = False, out: None = None) -> Any:
    return np.asarray(x).min(axis=_axes(axis), keepdims=keepdim)


@formula("exact", "all")
def _all(x: Any, axis: Any = None, keepdim: bool = False, out: None = None) -> Any:
    return np.asarray(x).all(axis=_axes(axis), keepdims=keepdim)


@formula("exact", "any")
def _any(x: Any, axis: Any = None, keepdim: bool = False, out: None = None) -> Any:
    return np.asarray(x).any(axis=_axes(axis), keepdims=keepdim)


@formula("positive")
def squared_l2_norm(x: Any) -> Any:
    return np.square(x).sum().reshape(1)


@formula("positive")
def add_n(terms: Any) -> Any:
    return sum(terms[1:], terms[0])


@formula("positive")
def cumsum(x: Any, axis: Any = -1, flatten: bool = False, exclusive: bool = False, reverse: bool = False) -> Any:
    axis = int(np.asarray(axis).reshape(-1)[0])
    x = np.asarray(x).reshape(-1) if flatten else np.asarray(x)
    ordered = np.flip(x, axis) if reverse else x
    total = np.cumsum(ordered, axis) - (ordered if exclusive else 0)
    return np.flip(total, axis) if reverse else total


# ---------------------------------------------------------------------------------------------- normalization and losses


@formula("rows")
def softmax(x: Any, axis: int = -1, dtype: Any = None, out: None = None) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@formula("rows")
def log_softmax(x: Any, axis: int = -1, dtype: Any = None, out: None = None) -> Any:
    below = x - x.max(axis=axis, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=axis, keepdims=True))


@formula("rows")
def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, begin_norm_axis: int = 1) -> Any:
    axes = tuple(range(begin_norm_axis, x.ndim))
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    shape = x.shape[begin_norm_axis:]
    result = (x - mean) / np.sqrt(variance + _single(epsilon))
    result = result * (1 if weight is None else weight.reshape(shape)) + (0 if bias is None else bias.reshape(shape))
    return result, None, None


@formula("rows")
def rms_norm(x: Any, weight: Any = None, normalized_shape: Any = (), epsilon: float = 1e-5) -> Any:
    axes = tuple(range(x.ndim - max(1, len(normalized_shape)), x.ndim))
    result = x / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + _single(epsilon))
    return result * (1 if weight is None else weight), None


@formula("rows")
def fused_rms_norm_quant(
    x: Any,
    bias: Any = None,
    residual: Any = None,
    weight: Any = None,
    norm_bias: Any = None,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
    quant_scale: float = -1.0,
    *_others: Any,
) -> Any:
    """As paddle.incubate.nn.functional.fused_rms_norm calls it, without quantization."""
    if quant_scale > 0:
        raise NotImplementedError("quantization")
    total = x + sum(0 if each is None else each for each in (bias, residual))
    axes = tuple(range(begin_norm_axis, x.ndim))
    result = total / np.sqrt(np.square(total).mean(axis=axes, keepdims=True) + _single(epsilon))
    return result * (1 if weight is None else weight) + (0 if norm_bias is None else norm_bias), None


@formula("rows")
def cross_entropy_with_softmax(
    logits: Any,
    label: Any,
    soft_label: bool = False,
    use_softmax: bool = True,
    numeric_stable_mode: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
) -> Any:
    probabilities = softmax(logits, axis) if use_softmax else logits
    logarithms = log_softmax(logits, axis) if use_softmax else np.log(logits)
    if soft_label:
        return probabilities, -(label * logarithms).sum(axis=axis, keepdims=True)
    label = label if label.ndim == logits.ndim else np.expand_dims(label, axis)
    counted = label != ignore_index
    loss = -np.take_along_axis(logarithms, np.where(counted, label, 0), axis)
    return probabilities, np.where(counted, loss, 0.0)


@formula("smooth")
def adamw(
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


@formula("smooth")
def adam(*arguments: Any) -> Any:
    """Kingma and Ba 2015, algorithm 1, as AdamW without decay; the arguments up to epsilon are those of adamw."""
    return adamw(*arguments[:13], with_decay=False)


@formula("smooth")
def sgd(weight: Any, rate: Any, gradient: Any, master: Any = None, *_others: Any) -> Any:
    before = weight if master is None else master
    after = before - rate * gradient
    return after, None if master is None else after


@formula("smooth")
def momentum(
    weight: Any,
    gradient: Any,
    velocity: Any,
    rate: Any,
    master: Any = None,
    share: float = 0.9,
    nesterov: bool = False,
    regularization: str = "",
    decay: float = 0.0,
    _multi_precision: bool = False,
    rescale: float = 1.0,
) -> Any:
    """Polyak 1964, and Nesterov's form of it; l2_decay adds decay * weight to the gradient."""
    before, share, decay = weight if master is None else master, _single(share), _single(decay)
    gradient = gradient * _single(rescale) + (decay * before if regularization == "l2_decay" else 0)
    velocity = share * velocity + gradient
    after = before - rate * (gradient + share * velocity if nesterov else velocity)
    return after, velocity, None if master is None else after
