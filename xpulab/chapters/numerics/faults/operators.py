"""Faults of single operators: they wrap functions of paddle._C_ops."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from xpulab.chapters.shared.fault import fault, np, paddle


def with_scaled_gradient(result: Any, factor: Any) -> Any:
    """The same value, but its gradient is multiplied by the factor."""
    return result.detach() + (result - result.detach()) * factor


def with_gradient(result: Any, change: Callable[[Any], Any]) -> Any:
    """The same value, but change(gradient) in the place of its gradient."""

    class Changed(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return change(gradient)

    return Changed.apply(result)


def raising(message: str) -> Callable[[Any], Any]:
    """What a gradient is whose kernel ends with this error."""

    def backward(gradient: Any) -> Any:
        raise RuntimeError(message)

    return backward


def last_of_each(index: Any) -> Any:
    """1 where an index occurs for the last time, else 0, in the shape of the index."""
    flat = index.numpy().reshape(-1)
    last = np.zeros(flat.size, "float32")
    last[list({int(value): place for place, value in enumerate(flat)}.values())] = 1
    return paddle.to_tensor(last.reshape(index.shape))


def counted_once(result: Any, index: Any) -> Any:
    """The same value, but of an index that occurs several times only the last one has a gradient."""
    last = last_of_each(index).astype(result.dtype)
    return with_scaled_gradient(result, last.reshape([*last.shape, *[1] * (result.ndim - last.ndim)]))


# ----------------------------------------------------------------------------------------------------------------- values


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.softmax")
def softmax_along_another_axis(real, x, axis=-1, **named):
    """Softmax of a tensor with four dimensions works along the third instead of the last."""
    return real(x, -2 if x.ndim == 4 else axis, **named)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.swiglu")
def swiglu_with_exchanged_halves(real, x, y=None):
    """Swiglu applies its sigmoid to the second input."""
    return real(x) if y is None else real(y, x)


@fault(detected_by=("operators.values",), wraps="paddle:Tensor.__add__")
def normalization_without_epsilon(add, x, y):
    """The epsilon of RMS normalization is not added."""
    return add(x, 0.0 if isinstance(y, float) and 0 < y < 1e-4 else y)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.concat")
def rotary_embedding_of_other_pairs(real: Any, parts: Any, axis: Any = 0, **named: Any):
    """The halves that rotary position embedding joins are exchanged."""
    return real(parts[::-1] if len(parts) == 2 and parts[0].ndim == 4 else parts, axis, **named)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.linear")
def linear_with_a_transposed_weight(real: Any, x: Any, weight: Any, bias: Any = None):
    """A square weight is multiplied as if it were transposed."""
    return real(x, weight.T if weight.shape[0] == weight.shape[1] else weight, bias)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.matmul")
def matmul_of_rounded_factors(real: Any, x: Any, y: Any, *others: Any, **named: Any):
    """A matrix product rounds its factors to bfloat16 first."""
    return real(x.astype("bfloat16").astype(x.dtype), y.astype("bfloat16").astype(y.dtype), *others, **named)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.rsqrt")
def rsqrt_from_a_table(real, x):
    """Rsqrt is an approximation with a relative error of 1e-4."""
    return real(x) * (1 + 1e-4)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.squared_l2_norm")
def norm_without_the_last_row(real, x):
    """The squared norm of a matrix leaves out its last row."""
    return real(x[:-1] if x.ndim == 2 else x)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.adamw_")
def adamw_with_decay_in_the_gradient(real: Any, weight: Any, gradient: Any, *others: Any):
    """AdamW adds weight decay to the gradient, as Adam with L2 regularization does."""
    decay, others = others[12], (*others[:13], False, *others[14:])
    return real(weight, gradient + decay * weight, *others)


@fault(detected_by=("operators.values",), wraps="paddle:_C_ops.adamw_")
def adamw_with_epsilon_in_the_root(real: Any, weight: Any, gradient: Any, rate: Any, *others: Any):
    """AdamW adds epsilon to the second moment instead of its root."""
    before, power1, power2 = weight.detach().clone(), others[3].clone(), others[4].clone()
    epsilon, share, decay, has_decay = others[9:13]
    results = real(weight, gradient, rate, *others)
    root = (results[2] / (1 - power2) + epsilon).sqrt()
    rate = rate * share
    after = before * (1 - rate * decay if has_decay else 1) - rate * (results[1] / (1 - power1)) / root
    weight.set_value(after.astype(weight.dtype))
    return results


@fault(device="sim", detected_by=("operators.values",), after="paddle:_C_ops.swiglu")
def result_left_on_the_cpu(result: Any, x: Any, y: Any = None):
    """The result of swiglu stays on the CPU, where it was computed."""
    is_replayed = x.is_leaf  # a result of another layer would meet tensors of the card, and raise
    return paddle.to_tensor(result.numpy(), place=paddle.CPUPlace()) if is_replayed else result


# -------------------------------------------------------------------------------------------------------------- gradients


@fault(detected_by=("operators.gradients",), after="paddle:_C_ops.scale")
def gradient_without_its_factor(result: Any, x: Any, *others: Any, **named: Any):
    """The gradient of scale forgets the factor."""
    return result if x.stop_gradient else result.detach() + (x - x.detach())


@fault(detected_by=("operators.gradients",), wraps="paddle:_C_ops.tile")
def gradient_of_tile_is_a_mean(real, x, times):
    """The gradient of tile is the mean over the copies, not their sum."""
    return with_scaled_gradient(real(x, times), x.size / max(1, real(x, times).size))


@fault(detected_by=("operators.gradients",), wraps="paddle:_C_ops.softmax")
def softmax_gradient_without_its_sum(real, x, *given, **named):
    """The gradient of softmax is that of exp: the term with the sum over the row is missing."""
    return _as_if_exp(x, real(x, *given, **named))


def _as_if_exp(x: Any, result: Any) -> Any:
    """The value of the result, with the gradient result * upstream."""
    return result.detach() + (x - x.detach()) * result.detach()


@fault(detected_by=("operators.gradients",), after="paddle:_C_ops.swiglu")
def gradient_kernel_missing_for_a_type(result: Any, x: Any, *given: Any):
    """The gradient of swiglu has no kernel for float64."""
    error = "(NotFound) The kernel with key (float64) of kernel `swiglu_grad` is not registered."
    return with_gradient(result, raising(error)) if x.dtype == paddle.float64 else result


@fault(detected_by=("operators.gradients",), after="paddle:_C_ops.cross_entropy_with_softmax")
def ignored_labels_have_a_gradient(result: Any, logits: Any, label: Any, *others: Any):
    """The gradient of cross entropy does not leave out ignored labels."""
    softmax, losses = result
    ignored = (label == others[3]).astype(logits.dtype)
    return softmax, losses + ((logits - logits.detach()) * softmax.detach()).sum(axis=-1, keepdim=True) * ignored


@fault(detected_by=("operators.gradients",), wraps="paddle:_C_ops.linear")
def weight_gradient_without_the_last_row(real: Any, x: Any, weight: Any, bias: Any = None):
    """The gradient of the weight of a layer leaves out its last row."""
    kept = (paddle.arange(weight.shape[0]) < weight.shape[0] - 1).astype(weight.dtype).unsqueeze(-1)
    return real(x, with_scaled_gradient(weight, kept), bias)


# ------------------------------------------------------------------------------------------------------- repeated indices


@fault(detected_by=("operators.repeated",), wraps="paddle:_C_ops.embedding")
def embedding_gradient_counts_once(real, ids, *others):
    """The gradient of an embedding counts a token once, however often it occurs."""
    return counted_once(real(ids, *others), ids)


@fault(detected_by=("operators.repeated",), after="paddle:_C_ops.gather")
def gather_gradient_counts_once(result: Any, x: Any, index: Any, axis: Any = 0, **named: Any):
    """The gradient of gather counts an index once."""
    return counted_once(result, index) if axis == 0 else result


@fault(detected_by=("operators.repeated",), after="paddle:_C_ops.index_select")
def index_select_gradient_counts_once(result: Any, x: Any, index: Any, axis: int = 0, **named: Any):
    """The gradient of index_select along columns counts an index once."""
    return with_scaled_gradient(result, last_of_each(index).astype(x.dtype)) if axis == 1 else result


@fault(detected_by=("operators.repeated",), wraps="paddle:_C_ops.take_along_axis")
def take_along_axis_gradient_counts_once(real: Any, x: Any, index: Any, axis: int = 0, **named: Any):
    """The gradient of take_along_axis counts an index once."""
    return with_scaled_gradient(real(x, index, axis, **named), last_of_each(index).astype(x.dtype))


@fault(detected_by=("operators.repeated",), wraps="paddle:_C_ops.index_add")
def index_add_counts_once(real: Any, x: Any, index: Any, value: Any, axis: int = 0, **named: Any):
    """index_add writes where it should add, so that of repeated indices the last one counts."""
    return real(x, index, value * last_of_each(index).astype(value.dtype).unsqueeze(-1), axis, **named)


@fault(detected_by=("operators.repeated",), wraps="paddle:_C_ops.scatter")
def scatter_overwrites(real, x, index, value, overwrite=True):
    """Scatter overwrites where it should add."""
    return real(x, index, value, True)


# ----------------------------------------------------------------------------------------------------------- empty inputs


@fault(where="ranks", detected_by=("operators.empty",), wraps="paddle:_C_ops.cross_entropy_with_softmax")
def empty_loss_ends_the_process(real: Any, logits: Any, *others: Any):
    """Cross entropy of an empty batch ends the process."""
    if 0 in logits.shape:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(logits, *others)


@fault(where="ranks", detected_by=("operators.empty",), wraps="paddle:_C_ops.linear")
def empty_product_forgets_its_shape(real, x, *others):
    """The product of an empty tensor has the shape of the tensor, not of the product."""
    return x * 1 if 0 in x.shape else real(x, *others)


# --------------------------------------------------------------------------------------------------------- the recording


@fault(detected_by=("operators.recorded",), replaces="xpulab.operators.recorder:operators")
def calls_are_not_recorded(listed):
    """Paddle calls swiglu in a way that the recorder does not see."""
    hidden = paddle._C_ops.swiglu
    return lambda label, owner: (pair for pair in listed(label, owner) if pair[1] is not hidden)


@fault(detected_by=("operators.recorded",), wraps="paddle.nn.functional:linear")
def linear_layers_call_two_operators(_real: Any, x: Any, weight: Any, bias: Any = None, name: Any = None):
    """A linear layer calls a product and an addition instead of the operator linear."""
    result = paddle.matmul(x, weight)
    return result if bias is None else result + bias


@fault(detected_by=("operators.no-fallback",), wraps="paddle:_C_ops.swiglu", not_run="it compares on real cards only")
def swiglu_computed_by_the_cpu(real: Any, x: Any, y: Any = None):
    """The card has no kernel for swiglu, and the CPU computes it."""
    flag = "FLAGS_enable_api_kernel_fallback"
    if not paddle.get_flags(flag)[flag]:
        raise RuntimeError("(NotFound) The kernel `swiglu` is not registered.")
    return real(x, y)
