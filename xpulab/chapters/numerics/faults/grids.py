"""Faults that only some values of an axis show: a layout, a shape, a range of values, a type, an attribute."""

from __future__ import annotations

from xpulab.chapters.numerics.faults.operators import with_gradient
from xpulab.chapters.shared.fault import fault, np, paddle


@fault(detected_by=("numerics.softmax",), wraps="paddle.nn.functional:softmax")
def softmax_reads_a_view_in_the_order_of_memory(softmax, x, axis=-1, *given):
    """Softmax takes the elements of a view in the order of memory."""
    in_memory = x if x.is_contiguous() or x.ndim != 2 else x.T.contiguous().reshape(x.shape)
    return softmax(in_memory, axis, *given)


@fault(detected_by=("numerics.reductions",), wraps="paddle:logsumexp")
def logsumexp_stops_after_1024(logsumexp, x, axis=None, **named):
    """The logarithm of a sum of exponentials leaves out what comes after the 1,024th element of a row."""
    return logsumexp(x[..., :1024] if x.ndim else x, axis=axis, **named)


@fault(detected_by=("numerics.reductions",), wraps="paddle:Tensor.sum")
def sum_of_nothing_is_one(add, self, axis=None, **named):
    """The sum of no element is 1."""
    return add(self, axis=axis, **named) + (0 in self.shape)


@fault(detected_by=("numerics.reductions",), wraps="paddle:logsumexp")
def logsumexp_overflows(_real, x, axis=None, keepdim=False, **named):
    """The logarithm of a sum of exponentials does not subtract the largest one, which overflows above 88."""
    return paddle.log(paddle.exp(x).sum(axis=axis, keepdim=keepdim))


@fault(detected_by=("numerics.reductions",), wraps="paddle:Tensor.max")
def maximum_over_two_axes_takes_one(largest, self, axis=None, keepdim=False):
    """A maximum over two axes takes the mean along the second one."""
    if not isinstance(axis, (tuple, list)):
        return largest(self, axis=axis, keepdim=keepdim)
    return (
        largest(self, axis=axis[0], keepdim=True)
        .mean(axis=axis[1:], keepdim=True)
        .reshape(largest(self, axis=axis, keepdim=keepdim).shape)
    )


@fault(detected_by=("numerics.reductions",), wraps="paddle:Tensor.prod")
def product_keeps_no_axis_at_the_end(multiply, self, axis=None, keepdim=False):
    """A product drops the axis along which it is taken, also where keepdim keeps it, when that is the last one, -1."""
    return multiply(self, axis=axis, keepdim=keepdim and axis != -1)


@fault(detected_by=("numerics.reductions",), wraps="paddle:Tensor.min")
def minimum_of_integers_without_sign(least, self, axis=None, keepdim=False):
    """The minimum of integers compares their sizes, as if they had no sign."""
    if self.dtype not in (paddle.int32, paddle.int64):
        return least(self, axis=axis, keepdim=keepdim)
    return least(self.abs(), axis=axis, keepdim=keepdim)


@fault(detected_by=("numerics.functions",), wraps="paddle.nn.functional:gelu")
def gelu_ignores_that_it_may_approximate(gelu, x, approximate=False, **named):
    """Gelu computes the exact formula where the approximation was asked for."""
    return gelu(x, approximate=False, **named)


@fault(detected_by=("numerics.functions",), wraps="paddle:log1p")
def log1p_loses_small_numbers(_real, x):
    """Log1p adds 1 first, and loses what is small beside it."""
    return paddle.log(1 + x)


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:multiply")
def gradient_of_a_broadcast_column_is_a_mean(multiply, x, y, *given):
    """The gradient of a factor that is broadcast along an axis is the mean along it, not the sum."""
    if y.ndim < 2 or y.shape[-1] != 1 or x.shape[-1] == 1:
        return multiply(x, y, *given)
    return multiply(x, with_gradient(y, lambda gradient: gradient / x.shape[-1]), *given)


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:subtract")
def difference_has_its_operands_exchanged(subtract, x, y, *given):
    """A number minus a tensor is the tensor minus the number."""
    return subtract(y, x, *given) if not x.ndim and y.ndim else subtract(x, y, *given)


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:Tensor.multiply_")
def product_in_place_leaves_the_last_row(multiply, self, y):
    """Multiplication in place leaves out the last row of a tensor of several axes."""
    if self.ndim < 3:
        return multiply(self, y)
    last = self[-1:].clone()
    multiply(self, y)
    self[-1:] = last
    return self


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:remainder")
def remainder_has_the_sign_of_the_dividend(_real, x, y, *given):
    """The remainder of negative numbers has the sign of the dividend, as in C."""
    return paddle.to_tensor(np.fmod(x.numpy(), y.numpy()))


@fault(detected_by=("numerics.functions",), after="paddle:clip")
def clip_passes_gradients_beyond_its_limits(result, x, *given, **named):
    """The gradient of clip is 1 for what was cut off, too."""
    return result.detach() + (x - x.detach())


@fault(detected_by=("numerics.functions",), wraps="paddle:pow")
def powers_of_negative_numbers_lose_their_sign(power, x, exponent, **named):
    """The third power of a negative number is positive."""
    return power(x.abs(), exponent, **named)


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:Tensor.__lt__")
def integers_are_compared_without_sign(less, self, other):
    """Integers are compared by their sizes, as if they had no sign."""
    is_integer = isinstance(other, paddle.Tensor) and self.dtype in (paddle.int32, paddle.int64)
    return less(self.abs(), other.abs()) if is_integer else less(self, other)
