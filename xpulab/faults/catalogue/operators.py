"""Faults of single operators, which 15_numerics must detect: they replace functions of paddle._C_ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xpulab.faults.fault import fault

NOTEBOOK = "15_numerics"


def replaced(name: str, change: Callable[..., Any]) -> None:
    """Replace an operator by change(operator, *arguments, **named)."""
    from paddle import _C_ops

    operator = getattr(_C_ops, name)
    setattr(_C_ops, name, lambda *given, **named: change(operator, *given, **named))


def with_scaled_gradient(result: Any, factor: Any) -> Any:
    """The same value, but its gradient is multiplied by the factor."""
    return result.detach() + (result - result.detach()) * factor


def last_of_each(index: Any) -> Any:
    """1 where an index occurs for the last time, else 0, in the shape of the index."""
    import numpy as np
    import paddle

    flat = index.numpy().reshape(-1)
    last = np.zeros(flat.size, "float32")
    last[list({int(value): place for place, value in enumerate(flat)}.values())] = 1
    return paddle.to_tensor(last.reshape(index.shape))


def counted_once(result: Any, index: Any) -> Any:
    """The same value, but of an index that occurs several times only the last one has a gradient."""
    last = last_of_each(index).astype(result.dtype)
    return with_scaled_gradient(result, last.reshape([*last.shape, *[1] * (result.ndim - last.ndim)]))


# ----------------------------------------------------------------------------------------------------------------- values


@fault(NOTEBOOK, detected_by=("operators.values",))
def softmax_along_another_axis() -> None:
    """Softmax of a tensor with four dimensions works along the third instead of the last."""
    replaced("softmax", lambda real, x, axis=-1, **named: real(x, -2 if x.ndim == 4 else axis, **named))


@fault(NOTEBOOK, detected_by=("operators.values",))
def swiglu_with_exchanged_halves() -> None:
    """Swiglu applies its sigmoid to the second input."""
    replaced("swiglu", lambda real, x, y=None: real(x) if y is None else real(y, x))


@fault(NOTEBOOK, detected_by=("operators.values",))
def normalization_without_epsilon() -> None:
    """The epsilon of RMS normalization is not added."""
    import paddle

    add = paddle.Tensor.__add__
    paddle.Tensor.__add__ = lambda x, y: add(x, 0.0 if isinstance(y, float) and 0 < y < 1e-4 else y)


@fault(NOTEBOOK, detected_by=("operators.values",))
def rotary_embedding_of_other_pairs() -> None:
    """The halves that rotary position embedding joins are exchanged."""

    def joined(real: Any, parts: Any, axis: Any = 0, **named: Any) -> Any:
        return real(parts[::-1] if len(parts) == 2 and parts[0].ndim == 4 else parts, axis, **named)

    replaced("concat", joined)


@fault(NOTEBOOK, detected_by=("operators.values",))
def linear_with_a_transposed_weight() -> None:
    """A square weight is multiplied as if it were transposed."""

    def linear(real: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        return real(x, weight.T if weight.shape[0] == weight.shape[1] else weight, bias)

    replaced("linear", linear)


@fault(NOTEBOOK, detected_by=("operators.values",))
def matmul_of_rounded_factors() -> None:
    """A matrix product rounds its factors to bfloat16 first."""

    def product(real: Any, x: Any, y: Any, *others: Any, **named: Any) -> Any:
        return real(x.astype("bfloat16").astype(x.dtype), y.astype("bfloat16").astype(y.dtype), *others, **named)

    replaced("matmul", product)


@fault(NOTEBOOK, detected_by=("operators.values",))
def rsqrt_from_a_table() -> None:
    """Rsqrt is an approximation with a relative error of 1e-4."""
    replaced("rsqrt", lambda real, x: real(x) * (1 + 1e-4))


@fault(NOTEBOOK, detected_by=("operators.values",))
def norm_without_the_last_row() -> None:
    """The squared norm of a matrix leaves out its last row."""
    replaced("squared_l2_norm", lambda real, x: real(x[:-1] if x.ndim == 2 else x))


@fault(NOTEBOOK, detected_by=("operators.values",))
def adamw_with_decay_in_the_gradient() -> None:
    """AdamW adds weight decay to the gradient, as Adam with L2 regularization does."""

    def step(real: Any, weight: Any, gradient: Any, *others: Any) -> Any:
        decay, others = others[12], (*others[:13], False, *others[14:])
        return real(weight, gradient + decay * weight, *others)

    replaced("adamw_", step)


@fault(NOTEBOOK, detected_by=("operators.values",))
def adamw_with_epsilon_in_the_root() -> None:
    """AdamW adds epsilon to the second moment instead of its root."""

    def step(real: Any, weight: Any, gradient: Any, rate: Any, *others: Any) -> Any:
        before, power1, power2 = weight.detach().clone(), others[3].clone(), others[4].clone()
        epsilon, share, decay, has_decay = others[9:13]
        results = real(weight, gradient, rate, *others)
        root = (results[2] / (1 - power2) + epsilon).sqrt()
        rate = rate * share
        after = before * (1 - rate * decay if has_decay else 1) - rate * (results[1] / (1 - power1)) / root
        weight.set_value(after.astype(weight.dtype))
        return results

    replaced("adamw_", step)


@fault(NOTEBOOK, device="sim", detected_by=("operators.values",))
def result_left_on_the_cpu() -> None:
    """The result of swiglu stays on the CPU, where it was computed."""

    def on_the_cpu(real: Any, x: Any, y: Any = None) -> Any:
        import paddle

        result = real(x, y)
        is_replayed = x.is_leaf  # a result of another layer would meet tensors of the card, and raise
        return paddle.to_tensor(result.numpy(), place=paddle.CPUPlace()) if is_replayed else result

    replaced("swiglu", on_the_cpu)


# -------------------------------------------------------------------------------------------------------------- gradients


@fault(NOTEBOOK, detected_by=("operators.gradients",))
def gradient_without_its_factor() -> None:
    """The gradient of scale forgets the factor."""

    def scaled(real: Any, x: Any, *others: Any, **named: Any) -> Any:
        result = real(x, *others, **named)
        return result if x.stop_gradient else result.detach() + (x - x.detach())

    replaced("scale", scaled)


@fault(NOTEBOOK, detected_by=("operators.gradients",))
def gradient_of_tile_is_a_mean() -> None:
    """The gradient of tile is the mean over the copies, not their sum."""
    replaced("tile", lambda real, x, times: with_scaled_gradient(real(x, times), x.size / max(1, real(x, times).size)))


@fault(NOTEBOOK, detected_by=("operators.gradients",))
def softmax_gradient_without_its_sum() -> None:
    """The gradient of softmax is that of exp: the term with the sum over the row is missing."""
    replaced("softmax", lambda real, x, *given, **named: _as_if_exp(x, real(x, *given, **named)))


def _as_if_exp(x: Any, result: Any) -> Any:
    """The value of the result, with the gradient result * upstream."""
    return result.detach() + (x - x.detach()) * result.detach()


@fault(NOTEBOOK, detected_by=("operators.gradients",))
def gradient_kernel_missing_for_a_type() -> None:
    """The gradient of swiglu has no kernel for float64."""

    def swiglu(real: Any, x: Any, *given: Any) -> Any:
        import paddle

        class WithoutKernel(paddle.autograd.PyLayer):
            @staticmethod
            def forward(ctx: Any, result: Any) -> Any:
                return result.clone()

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                raise RuntimeError("(NotFound) The kernel with key (float64) of kernel `swiglu_grad` is not registered.")

        result = real(x, *given)
        return WithoutKernel.apply(result) if x.dtype == paddle.float64 else result

    replaced("swiglu", swiglu)


@fault(NOTEBOOK, detected_by=("operators.gradients",))
def ignored_labels_have_a_gradient() -> None:
    """The gradient of cross entropy does not leave out ignored labels."""

    def loss(real: Any, logits: Any, label: Any, *others: Any) -> Any:
        softmax, losses = real(logits, label, *others)
        ignored = (label == others[3]).astype(logits.dtype)
        return softmax, losses + ((logits - logits.detach()) * softmax.detach()).sum(axis=-1, keepdim=True) * ignored

    replaced("cross_entropy_with_softmax", loss)


@fault(NOTEBOOK, detected_by=("operators.gradients",))
def weight_gradient_without_the_last_row() -> None:
    """The gradient of the weight of a layer leaves out its last row."""

    def linear(real: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        import paddle

        kept = (paddle.arange(weight.shape[0]) < weight.shape[0] - 1).astype(weight.dtype).unsqueeze(-1)
        return real(x, with_scaled_gradient(weight, kept), bias)

    replaced("linear", linear)


# ------------------------------------------------------------------------------------------------------- repeated indices


@fault(NOTEBOOK, detected_by=("operators.repeated",))
def embedding_gradient_counts_once() -> None:
    """The gradient of an embedding counts a token once, however often it occurs."""
    replaced("embedding", lambda real, ids, *others: counted_once(real(ids, *others), ids))


@fault(NOTEBOOK, detected_by=("operators.repeated",))
def gather_gradient_counts_once() -> None:
    """The gradient of gather counts an index once."""

    def gather(real: Any, x: Any, index: Any, axis: Any = 0, **named: Any) -> Any:
        result = real(x, index, axis, **named)
        return counted_once(result, index) if axis == 0 else result

    replaced("gather", gather)


@fault(NOTEBOOK, detected_by=("operators.repeated",))
def index_select_gradient_counts_once() -> None:
    """The gradient of index_select along columns counts an index once."""

    def select(real: Any, x: Any, index: Any, axis: int = 0, **named: Any) -> Any:
        result = real(x, index, axis, **named)
        return with_scaled_gradient(result, last_of_each(index).astype(x.dtype)) if axis == 1 else result

    replaced("index_select", select)


@fault(NOTEBOOK, detected_by=("operators.repeated",))
def take_along_axis_gradient_counts_once() -> None:
    """The gradient of take_along_axis counts an index once."""

    def take(real: Any, x: Any, index: Any, axis: int = 0, **named: Any) -> Any:
        return with_scaled_gradient(real(x, index, axis, **named), last_of_each(index).astype(x.dtype))

    replaced("take_along_axis", take)


@fault(NOTEBOOK, detected_by=("operators.repeated",))
def index_add_counts_once() -> None:
    """Index_add writes where it should add, so that of repeated indices the last one counts."""

    def add(real: Any, x: Any, index: Any, value: Any, axis: int = 0, **named: Any) -> Any:
        return real(x, index, value * last_of_each(index).astype(value.dtype).unsqueeze(-1), axis, **named)

    replaced("index_add", add)


@fault(NOTEBOOK, detected_by=("operators.repeated",))
def scatter_overwrites() -> None:
    """Scatter overwrites where it should add."""
    replaced("scatter", lambda real, x, index, value, overwrite=True: real(x, index, value, True))


# ----------------------------------------------------------------------------------------------------------- empty inputs


@fault(NOTEBOOK, where="ranks", detected_by=("operators.empty",))
def empty_loss_ends_the_process() -> None:
    """Cross entropy of an empty batch ends the process."""
    import os
    import signal

    def loss(real: Any, logits: Any, *others: Any) -> Any:
        if 0 in logits.shape:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(logits, *others)

    replaced("cross_entropy_with_softmax", loss)


@fault(NOTEBOOK, where="ranks", detected_by=("operators.empty",))
def empty_product_forgets_its_shape() -> None:
    """The product of an empty tensor has the shape of the tensor, not of the product."""
    replaced("linear", lambda real, x, *others: x * 1 if 0 in x.shape else real(x, *others))


# --------------------------------------------------------------------------------------------------------- the recording


@fault(NOTEBOOK, detected_by=("operators.recorded",))
def calls_are_not_recorded() -> None:
    """Paddle calls swiglu in a way that the recorder does not see."""
    from paddle import _C_ops

    import xpulab.operators.recorder as recorder

    listed = recorder._operators
    hidden = _C_ops.swiglu
    recorder._operators = lambda label, owner: (pair for pair in listed(label, owner) if pair[1] is not hidden)
