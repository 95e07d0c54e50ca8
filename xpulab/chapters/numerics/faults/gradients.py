"""Faults of second gradients, of memory that gradients share, and of float8."""

from __future__ import annotations

from xpulab.chapters.numerics.faults.operators import with_gradient
from xpulab.chapters.shared.fault import fault, paddle


@fault(detected_by=("numerics.second-gradients",), also_on=("sim",), wraps="paddle:grad")
def second_gradients_of_a_batch_are_doubled(grad, outputs, inputs, *given, create_graph=False, **named):
    """The gradient of a product of batches is right, and its own gradient is twice as large."""
    slopes = grad(outputs, inputs, *given, create_graph=create_graph, **named)
    if not (create_graph and all(each.ndim == 3 for each in inputs)):
        return slopes
    return [with_gradient(slope, lambda gradient: 2 * gradient) for slope in slopes]


@fault(detected_by=("numerics.shared-gradients",), also_on=("sim",), wraps="paddle:add_n")
def add_n_hands_one_gradient_to_all(_real, tensors):
    """The tensors that add_n sums get one gradient, in the same memory."""

    class Sum(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, *summands):
            return sum(summands[1:], summands[0])

        @staticmethod
        def backward(ctx, gradient):
            return (gradient,) * len(tensors)

    return Sum.apply(*tensors)


@fault(detected_by=("numerics.float8",), also_on=("sim",), wraps="paddle:Tensor.cast")
def small_codes_of_float8_are_zero(cast, self, dtype):
    """A cast from float8_e5m2 makes the numbers 0 that are too small for a normal one, below 6.1e-5."""
    result = cast(self, dtype)
    if self.dtype != paddle.float8_e5m2 or str(dtype).removeprefix("paddle.") != "float32":
        return result
    return paddle.where(result.abs() < 2.0**-14, paddle.zeros_like(result), result)
