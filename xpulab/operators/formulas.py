"""The operators of a training step in numpy, in double precision, by the names that they have in paddle._C_ops.

    formula = FORMULAS["matmul"]
    (product,) = formula.results(x, y, transpose_y=True)

Arguments are those of the operator, in its order, with arrays in place of tensors; types are NamedType. What chapter 17 has
on grids, too, is that of xpulab.reference.operators. Source of orders and
defaults: paddle/phi/ops/yaml/ops.yaml of release 3.3 and the calls that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xpulab.operators.calls import NamedType
from xpulab.reference import operators
from xpulab.reference.operators import FUNCTIONS, PAIRS

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


@formula("smooth", "gelu")
def _gelu(x: Any, approximate: bool = False) -> Any:
    return FUNCTIONS["gelu, approximate" if approximate else "gelu"].value(x)


@formula("smooth", "swiglu")
def _swiglu(x: Any, y: Any = None) -> Any:
    if y is None:
        x, y = np.split(x, 2, axis=-1)
    return PAIRS["swiglu"].value(x, y)


@formula("smooth", "scale")
def _scale(x: Any, factor: Any = 1.0, bias: float = 0.0, bias_after_scale: bool = True) -> Any:
    return x * factor + bias if bias_after_scale else (x + bias) * factor


@formula("smooth", "clip")
def _clip(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


_NAMES = {
    **{"logsigmoid": "log_sigmoid", "sub": "subtract", "mul": "multiply", "truediv": "divide", "div": "divide"},
    **{"equal": "==", "not_equal": "!=", "less_than": "<", "less_equal": "<=", "greater_than": ">", "greater_equal": ">="},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "radd": "add", "rmul": "multiply"},
    **{"floordiv": "floor_divide", "mod": "remainder"},
}
"""By operator its name in reference.operators, where that is another one."""

_OF_ONE = ("sqrt", "exp", "log", "sin", "cos", "tanh", "square", "sigmoid", "erf", "silu", "rsqrt", "reciprocal", "logsigmoid")
_OF_TWO = ("add", "radd", "sub", "subtract", "mul", "rmul", "multiply", "div", "truediv", "divide")
_EXACT_OF_TWO = (
    *("maximum", "minimum", "gt", "greater_than", "ge", "greater_equal", "lt", "less_than", "le", "less_equal", "eq", "equal"),
    *("ne", "not_equal", "logical_and", "logical_or", "logical_xor", "floordiv", "floor_divide", "mod", "remainder"),
)
_OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "rsub": lambda x, y: y - x,
    **dict.fromkeys(("rdiv", "rtruediv"), lambda x, y: y / x),
    "pow": lambda x, y: np.asarray(x) ** y,
    "rpow": lambda x, y: y ** np.asarray(x),
}
_EXACT: dict[str, Callable[..., Any]] = {
    **{"fmax": np.fmax, "fmin": np.fmin, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or},
    **{"bitwise_xor": np.bitwise_xor, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "abs": np.abs},
    **{"logical_not": np.logical_not, "bitwise_not": np.invert, "isnan": np.isnan, "isinf": np.isinf},
    **{"isfinite": np.isfinite, "assign": np.copy, "clone": np.copy, "contiguous": np.copy, "neg": np.negative},
    "relu": FUNCTIONS["relu"].value,
}


def _register(kind: Kind, functions: Mapping[str, Callable]) -> None:
    def ignoring_out(function: Callable) -> Callable:
        return lambda *given, out=None, **named: function(*given, *(named[name] for name in ("x", "y") if name in named))

    for name, function in functions.items():
        FORMULAS[name] = Formula(ignoring_out(function), kind)


_register("smooth", {name: FUNCTIONS[_NAMES.get(name, name)].value for name in (*_OF_ONE, "log1p")} | _OTHERS)
_register("smooth", {name: PAIRS[_NAMES.get(name, name)].value for name in _OF_TWO})
_register("exact", {name: PAIRS[_NAMES.get(name, name)].value for name in _EXACT_OF_TWO} | _EXACT)


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


@formula("rows", "softmax")
def _softmax(x: Any, axis: int = -1, dtype: Any = None, out: None = None) -> Any:
    return operators.softmax(x, axis)


@formula("rows", "log_softmax")
def _log_softmax(x: Any, axis: int = -1, dtype: Any = None, out: None = None) -> Any:
    return operators.log_softmax(x, axis)


def _normalized(x: Any, begin_norm_axis: int, epsilon: float, weight: Any, bias: Any, is_centered: bool) -> Any:
    result = operators.normalized(x, tuple(range(begin_norm_axis, x.ndim)), _single(epsilon), is_centered)[0]
    shape = x.shape[begin_norm_axis:]
    return result * (1 if weight is None else weight.reshape(shape)) + (0 if bias is None else bias.reshape(shape))


@formula("rows")
def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, begin_norm_axis: int = 1) -> Any:
    return _normalized(x, begin_norm_axis, epsilon, weight, bias, True), None, None


@formula("rows")
def rms_norm(x: Any, weight: Any = None, normalized_shape: Any = (), epsilon: float = 1e-5) -> Any:
    return _normalized(x, x.ndim - max(1, len(normalized_shape)), epsilon, weight, None, False), None


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
    return _normalized(total, begin_norm_axis, epsilon, weight, norm_bias, False), None


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
    probabilities = operators.softmax(logits, axis) if use_softmax else logits
    logarithms = operators.log_softmax(logits, axis) if use_softmax else np.log(logits)
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
