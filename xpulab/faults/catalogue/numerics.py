"""Faults that 15_numerics must detect: operators, their gradients, and random numbers."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("15_numerics", detected_by=("numerics.softmax",))
def softmax_in_bfloat16() -> None:
    """Softmax is computed in bfloat16 where float32 was asked for."""
    import paddle

    softmax = paddle.nn.functional.softmax
    paddle.nn.functional.softmax = lambda x, *given: softmax(x.astype("bfloat16"), *given).astype(x.dtype)


@fault("15_numerics", detected_by=("numerics.layer-norm",))
def layer_norm_with_another_epsilon() -> None:
    """Layer norm ignores the epsilon that it is given."""
    import paddle

    norm = paddle.nn.functional.layer_norm
    paddle.nn.functional.layer_norm = lambda x, shape, epsilon=1e-5, **named: norm(x, shape, epsilon=1e-3, **named)


@fault("15_numerics", detected_by=("numerics.reductions",))
def mean_divides_by_n_minus_one() -> None:
    """A mean divides by the number of its terms minus one."""
    import paddle

    mean = paddle.Tensor.mean

    def biased(self, axis=None, **named):
        count = self.shape[axis] if isinstance(axis, int) else self.size
        return mean(self, axis=axis, **named) * (count / max(1, count - 1))

    paddle.Tensor.mean = biased


@fault("15_numerics", detected_by=("numerics.random",))
def bernoulli_with_inverted_probability() -> None:
    """Bernoulli_(p) is 1 with probability 1 - p, as in Paddle 3.0.0."""
    import paddle

    draw = paddle.Tensor.bernoulli_
    paddle.Tensor.bernoulli_ = lambda self, p=0.5, **named: draw(self, 1 - p, **named)


@fault("15_numerics", detected_by=("numerics.random",))
def seed_ignored() -> None:
    """The seed is ignored."""
    import paddle

    paddle.seed = lambda seed: None


@fault("15_numerics", detected_by=("numerics.edges",))
def maximum_drops_nan() -> None:
    """Maximum drops NaN, as in Paddle 3.0.0."""
    import paddle

    paddle.maximum = paddle.fmax


@fault("15_numerics", detected_by=("numerics.gradients",))
def gather_gradient_in_other_rows() -> None:
    """The gradient of gather goes to other rows, as in Paddle 3.0.0."""
    import paddle

    gather = paddle.gather

    def with_reversed_gradient(x, index, axis=0):
        right = gather(x, index, axis)
        return right.detach() + (right - right.detach()).flip(0)

    paddle.gather = with_reversed_gradient


@fault("15_numerics", detected_by=("numerics.functions",))
def exp_with_a_relative_error() -> None:
    """Exp has a relative error of 1e-4."""
    import paddle

    exp = paddle.exp
    paddle.exp = lambda x: exp(x) * (1 + 1e-4)


@fault("15_numerics", detected_by=("numerics.gradients",))
def value_set_without_gradient() -> None:
    """The gradient of values that are set under a mask is 0, as in Paddle 3.1.0."""
    import paddle

    put = paddle.Tensor.__setitem__

    def without(self, where, value):
        if isinstance(value, paddle.Tensor) and not value.stop_gradient:
            value = value.detach() + 0 * value
        put(self, where, value)

    paddle.Tensor.__setitem__ = without


@fault("15_numerics", detected_by=("numerics.edges",))
def softmax_overflows() -> None:
    """Softmax does not subtract the largest score, so large scores overflow."""
    import paddle

    def softmax(x, axis=-1, *given):
        powers = paddle.exp(x)
        return powers / powers.sum(axis=-1, keepdim=True)

    paddle.nn.functional.softmax = softmax


@fault("15_numerics", detected_by=("numerics.functions",))
def activations_in_bfloat16() -> None:
    """Silu, sigmoid, gelu and erf are computed in bfloat16 where float32 was asked for."""
    import paddle

    def rounded(function):
        return lambda x, *given, **named: function(x.astype("bfloat16"), *given, **named).astype(x.dtype)

    for module in (paddle, paddle.nn.functional):
        for name in ("silu", "sigmoid", "gelu", "erf"):
            if hasattr(module, name):
                setattr(module, name, rounded(getattr(module, name)))


@fault("15_numerics", detected_by=("numerics.gradients",))
def layer_norm_gradient_without_mean() -> None:
    """The gradient of layer norm omits the part of the mean."""
    import paddle

    def layer_norm(x, shape, weight=None, bias=None, epsilon=1e-5, name=None):
        mean = x.mean(axis=-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdim=True)
        normal = (x - mean.detach()) / paddle.sqrt(variance + epsilon)
        normal = normal if weight is None else normal * weight
        return normal if bias is None else normal + bias

    paddle.nn.functional.layer_norm = layer_norm


@fault("15_numerics", detected_by=("numerics.edges",))
def sorted_indices_in_another_order() -> None:
    """Topk and argsort give the right indices in the wrong order."""
    import paddle

    topk, argsort = paddle.topk, paddle.argsort
    paddle.topk = lambda *given, **named: tuple(part.flip(-1) for part in topk(*given, **named))
    paddle.argsort = lambda *given, **named: argsort(*given, **named).flip(-1)


@fault("15_numerics", detected_by=("numerics.gradients",))
def embedding_gradient_of_the_last() -> None:
    """Only the last occurrence of a token adds to the embedding's gradient."""
    import paddle

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

    paddle.nn.functional.embedding = lambda tokens, weight, *given, **named: Embedding.apply(tokens, weight)


@fault("15_numerics", detected_by=("numerics.edges",))
def cumsum_excludes_the_element() -> None:
    """Cumsum excludes the element itself."""
    import paddle

    cumsum = paddle.cumsum
    paddle.cumsum = lambda x, *given, **named: cumsum(x, *given, **named) - x


@fault("15_numerics", detected_by=("numerics.gradients",))
def masked_values_get_gradients() -> None:
    """masked_fill gives gradients to the values that it replaces."""
    import paddle

    fill = paddle.masked_fill
    paddle.masked_fill = lambda x, mask, value: fill(x, mask, value).detach() + (x - x.detach())
