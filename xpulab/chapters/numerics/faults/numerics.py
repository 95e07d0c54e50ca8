"""Faults of operators, their gradients, and random numbers."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault, paddle


@fault(detected_by=("numerics.softmax",), wraps="paddle.nn.functional:softmax")
def softmax_in_bfloat16(softmax, x, *given):
    """Softmax is computed in bfloat16 where float32 was asked for."""
    return softmax(x.astype("bfloat16"), *given).astype(x.dtype)


@fault(detected_by=("numerics.norms",), wraps="paddle.nn.functional:layer_norm")
def layer_norm_with_another_epsilon(norm, x, shape, epsilon=1e-05, **named):
    """Layer norm ignores the epsilon that it is given."""
    return norm(x, shape, epsilon=1e-3, **named)


@fault(detected_by=("numerics.reductions",), wraps="paddle:Tensor.mean")
def mean_divides_by_n_minus_one(mean, self, axis=None, **named):
    """A mean divides by the number of its terms minus one."""
    count = self.shape[axis] if isinstance(axis, int) else self.size
    return mean(self, axis=axis, **named) * (count / max(1, count - 1))


@fault(detected_by=("numerics.random",), wraps="paddle:Tensor.bernoulli_")
def bernoulli_with_inverted_probability(draw, self, p=0.5, **named):
    """bernoulli_(p) is 1 with probability 1 - p, as in Paddle 3.0.0."""
    return draw(self, 1 - p, **named)


@fault(detected_by=("numerics.random",), wraps="paddle:seed")
def seed_ignored(_real, seed):
    """The seed is ignored."""


@fault(detected_by=("numerics.edges",), replaces="paddle:maximum")
def maximum_drops_nan(_real):
    """Maximum drops NaN, as in Paddle 3.0.0."""
    return paddle.fmax


@fault(detected_by=("numerics.gradients",), after="paddle:gather")
def gather_gradient_in_other_rows(right, x, index, axis=0):
    """The gradient of gather goes to other rows, as in Paddle 3.0.0."""
    return right.detach() + (right - right.detach()).flip(0)


@fault(detected_by=("numerics.functions",), wraps="paddle:exp")
def exp_with_a_relative_error(exp, x):
    """Exp has a relative error of 1e-4."""
    return exp(x) * (1 + 1e-4)


@fault(detected_by=("numerics.gradients",), wraps="paddle:Tensor.__setitem__")
def value_set_without_gradient(put, self, where, value):
    """The gradient of values that are set under a mask is 0, as in Paddle 3.1.0."""
    if isinstance(value, paddle.Tensor) and not value.stop_gradient:
        value = value.detach() + 0 * value
    put(self, where, value)


@fault(detected_by=("numerics.edges",), wraps="paddle.nn.functional:softmax")
def softmax_overflows(_real, x, axis=-1, *given):
    """Softmax does not subtract the largest score, so large scores overflow."""
    powers = paddle.exp(x)
    return powers / powers.sum(axis=-1, keepdim=True)


@fault(
    detected_by=("numerics.functions",),
    wraps=("paddle.nn.functional:silu", "paddle.nn.functional:gelu", "paddle.nn.functional:sigmoid", "paddle:erf"),
)
def activations_in_bfloat16(activation, x, *given, **named):
    """Silu, sigmoid, gelu and erf are computed in bfloat16 where float32 was asked for."""
    return activation(x.astype("bfloat16").astype(x.dtype), *given, **named).astype("bfloat16").astype(x.dtype)


@fault(detected_by=("numerics.norms",), wraps="paddle.nn.functional:layer_norm")
def layer_norm_gradient_without_mean(_real, x, shape, weight=None, bias=None, epsilon=1e-05, name=None):
    """The gradient of layer norm omits the part of the mean."""
    mean = x.mean(axis=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdim=True)
    normal = (x - mean.detach()) / paddle.sqrt(variance + epsilon)
    normal = normal if weight is None else normal * weight.reshape(list(shape))
    return normal if bias is None else normal + bias.reshape(list(shape))


@fault(detected_by=("numerics.orders",), after=("paddle:topk", "paddle:argsort"))
def sorted_indices_in_another_order(found, *given, **named):
    """Topk and argsort give the right indices in the wrong order."""
    return found.flip(-1) if isinstance(found, paddle.Tensor) else tuple(part.flip(-1) for part in found)


@fault(detected_by=("numerics.gradients",), replaces="paddle.nn.functional:embedding")
def embedding_gradient_of_the_last(_real):
    """Only the last occurrence of a token adds to the embedding's gradient."""

    class Embedding(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, tokens, weight):
            ctx.save_for_backward(tokens, weight)
            return paddle.gather(weight, tokens.reshape([-1])).reshape([*tokens.shape, weight.shape[1]])

        @staticmethod
        def backward(ctx, slope):
            tokens, weight = ctx.saved_tensor()
            rows = slope.reshape([-1, weight.shape[1]])
            return None, paddle.scatter(paddle.zeros_like(weight), tokens.reshape([-1]), rows, overwrite=True)

    return lambda tokens, weight, *given, **named: Embedding.apply(tokens, weight)


@fault(detected_by=("numerics.orders", "numerics.softmax"), wraps="paddle:cumsum")
def cumsum_excludes_the_element(cumsum, x, *given, **named):
    """Cumsum excludes the element itself."""
    return cumsum(x, *given, **named) - x


@fault(detected_by=("numerics.gradients",), wraps="paddle:masked_fill")
def masked_values_get_gradients(fill, x, mask, value):
    """masked_fill gives gradients to the values that it replaces."""
    return fill(x, mask, value).detach() + (x - x.detach())


@fault(detected_by=("amp.types",), wraps="paddle.nn.functional:softmax")
def exponentials_stay_in_the_half_type(softmax, x, *given, **named):
    """Softmax gives its result in bfloat16 where float32 is expected."""
    return softmax(x, *given, **named).astype("bfloat16")


@fault(detected_by=("numerics.cross-entropy",), wraps="paddle.nn.functional:cross_entropy")
def only_one_label_is_ignored(loss, scores, labels, *given, **named):
    """Cross entropy ignores the label -100 whatever ignore_index says, as on XPUs."""
    named.pop("ignore_index", None)
    return loss(scores, labels, *given, **named)


@fault(detected_by=("numerics.functions",), wraps="paddle.nn.functional:silu")
def silu_overflows_far_from_zero(_real, x, *given, **named):
    """Silu divides by a power that overflows for large inputs."""
    powers = paddle.exp(x)
    return x * (powers / (1 + powers))


@fault(detected_by=("numerics.functions",), after="paddle.nn.functional:gelu")
def gelu_gradient_lost_far_from_zero(right, x, *given, **named):
    """The gradient of gelu is 0 for inputs above 1,000."""
    return paddle.where(x > 1000, right.detach(), right)


@fault(detected_by=("numerics.reductions",), wraps="paddle:Tensor.min")
def min_gradient_spread_over_the_row(least, self, axis=None, **named):
    """The gradient of a minimum is divided among all elements of its row."""
    right, mean = least(self, axis=axis, **named), self.astype("float32").mean(axis=axis, **named).astype(self.dtype)
    return right.detach() + (mean - mean.detach())


@fault(detected_by=("numerics.edges",), after="paddle:full")
def full_forgets_an_unaligned_end(filled, shape, value, dtype=None, **named):
    """A tensor of int64 that is filled with a number has a 0 at its end when its size is no multiple of 8."""
    if str(dtype).endswith("int64") and filled.ndim == 1 and filled.size > 64 and filled.size % 8:
        filled[-1] = 0
