"""Faults that 15_numerics must detect: operators that lose bits, or are wrong at some sizes."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault(
    "15_numerics",
    detected_by=("precision.first-product", "precision.factors", "precision.lengths"),
    smoke=("precision.first-product",),
)
def products_in_tf32() -> None:
    """The operator @ rounds the factors of float32 products to ten bits."""
    import numpy as np
    import paddle

    product = paddle.Tensor.__matmul__

    def rounded(tensor):
        if tensor.dtype != paddle.float32:
            return tensor
        bits = (tensor.numpy().view("uint32") + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        return tensor + (paddle.to_tensor(bits.view("float32")) - tensor).detach()

    paddle.Tensor.__matmul__ = lambda self, other: product(rounded(self), rounded(other))


@fault("15_numerics", detected_by=("precision.factors", "operators.linear"))
def linear_gradients_in_bfloat16() -> None:
    """The gradients of a linear layer are computed from gradients in bfloat16."""
    import paddle

    real = paddle.nn.functional.linear

    class Rounded(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.astype("bfloat16").astype(gradient.dtype)

    paddle.nn.functional.linear = lambda *given, **named: Rounded.apply(real(*given, **named))


@fault("15_numerics", detected_by=("precision.factors", "operators.attention"))
def attention_values_in_bfloat16() -> None:
    """Attention rounds the values to bfloat16."""
    import paddle

    real = paddle.nn.functional.scaled_dot_product_attention

    def attend(query, key, value, *given, **named):
        return real(query, key, value + (value.astype("bfloat16").astype(value.dtype) - value).detach(), *given, **named)

    paddle.nn.functional.scaled_dot_product_attention = attend


@fault("15_numerics", detected_by=("precision.factors",))
def attention_scores_in_bfloat16() -> None:
    """Attention rounds the queries to bfloat16."""
    import paddle

    real = paddle.nn.functional.scaled_dot_product_attention

    def attend(query, *given, **named):
        return real(query + (query.astype("bfloat16").astype(query.dtype) - query).detach(), *given, **named)

    paddle.nn.functional.scaled_dot_product_attention = attend


@fault("15_numerics", detected_by=("precision.factors",))
def convolution_in_bfloat16() -> None:
    """A convolution rounds its input to bfloat16."""
    import paddle

    real = paddle.nn.functional.conv2d
    paddle.nn.functional.conv2d = lambda x, *given, **named: real(
        x + (x.astype("bfloat16").astype(x.dtype) - x).detach(), *given, **named
    )


@fault("15_numerics", detected_by=("precision.sums",))
def sums_accumulate_in_bfloat16() -> None:
    """A sum adds the two halves of its terms in bfloat16."""
    import paddle

    real = paddle.Tensor.sum

    def halves(self, axis=None, **named):
        if axis is None or self.shape[axis] < 2 or not self.dtype.is_floating_point:
            return real(self, axis, **named)
        first, second = paddle.split(self, [self.shape[axis] // 2, -1], axis)
        narrow = [real(each, axis, **named).astype("bfloat16").astype(self.dtype) for each in (first, second)]
        return narrow[0] + narrow[1]

    paddle.Tensor.sum = halves


@fault("15_numerics", detected_by=("precision.lengths",), also_on=("sim",))
def long_products_lose_bits() -> None:
    """Products of 4,096 and more terms round their left factor to bfloat16."""
    import paddle

    product = paddle.Tensor.__matmul__

    def rounded_when_long(self, other):
        long = self.shape[-1] >= 4096
        return product(self.astype("bfloat16").astype(self.dtype) if long else self, other)

    paddle.Tensor.__matmul__ = rounded_when_long


@fault("15_numerics", detected_by=("operators.linear",))
def columns_of_a_wide_output_are_missing() -> None:
    """A linear layer with more than 200,000 outputs leaves the last 1,000 at zero."""
    import paddle

    real = paddle.nn.functional.linear

    def linear(x, weight, *given, **named):
        result = real(x, weight, *given, **named)
        if result.shape[-1] > 200_000:
            kept = paddle.arange(result.shape[-1]) < result.shape[-1] - 1000
            result = result * kept.astype(result.dtype)
        return result

    paddle.nn.functional.linear = linear


@fault("15_numerics", detected_by=("operators.linear",))
def long_linear_layers_drop_the_last_terms() -> None:
    """A linear layer with more than 8,192 inputs leaves out the last 16."""
    import paddle

    real = paddle.nn.functional.linear

    def linear(x, weight, *given, **named):
        size = x.shape[-1] - 16 if x.shape[-1] > 8192 else x.shape[-1]
        return real(x[..., :size], weight[:size], *given, **named)

    paddle.nn.functional.linear = linear


@fault("15_numerics", detected_by=("operators.boundaries",))
def last_row_of_an_odd_size_not_computed() -> None:
    """The last row of a linear layer's output is zero when 33 or 129 rows are computed."""
    import paddle

    real = paddle.nn.functional.linear

    def linear(x, weight, *given, **named):
        result = real(x, weight, *given, **named)
        if x.shape[0] in (33, 129):
            result = result * (paddle.arange(x.shape[0]) < x.shape[0] - 1).astype(result.dtype).unsqueeze(1)
        return result

    paddle.nn.functional.linear = linear


@fault("15_numerics", detected_by=("operators.boundaries",))
def softmax_wrong_beyond_1024_rows() -> None:
    """Softmax repeats its first row from row 1,024 on."""
    import paddle

    real = paddle.nn.functional.softmax

    def softmax(x, *given, **named):
        result = real(x, *given, **named)
        return paddle.concat([result[:1024], result[:1].expand([result.shape[0] - 1024, -1])]) if x.shape[0] > 1024 else result

    paddle.nn.functional.softmax = softmax


@fault("15_numerics", detected_by=("operators.boundaries",))
def embedding_wrong_beyond_1024_tokens() -> None:
    """An embedding returns the row of the first token for every token from number 2,048 on."""
    import paddle

    real = paddle.nn.functional.embedding

    def embedding(tokens, weight, *given, **named):
        if tokens.ndim == 1 and tokens.shape[0] > 2048:
            tokens = paddle.concat([tokens[:2048], tokens[:1].expand([tokens.shape[0] - 2048])])
        return real(tokens, weight, *given, **named)

    paddle.nn.functional.embedding = embedding


@fault("15_numerics", detected_by=("operators.attention",))
def attention_scale_of_a_padded_head() -> None:
    """Attention with heads of 80 scales its scores as if they had 128, the size to which the kernel pads them."""
    import paddle

    real = paddle.nn.functional.scaled_dot_product_attention

    def attend(query, *given, **named):
        return real(query * (80 / 128) ** 0.5 if query.shape[-1] == 80 else query, *given, **named)

    paddle.nn.functional.scaled_dot_product_attention = attend


@fault("15_numerics", detected_by=("operators.attention",))
def shared_key_heads_get_one_gradient() -> None:
    """A key head that two heads share gets the gradient of the first one only."""
    import paddle

    real = paddle.repeat_interleave

    def repeat(x, repeats, axis=None, name=None):
        result = real(x, repeats, axis)
        if axis != 2:
            return result
        first = (paddle.arange(result.shape[2]) % repeats == 0).astype(x.dtype).reshape([1, 1, -1, 1])
        return result.detach() + (result - result.detach()) * first

    paddle.repeat_interleave = repeat


@fault("15_numerics", detected_by=("operators.attention",))
def attention_wrong_beyond_batch_1024() -> None:
    """Attention of a batch with more than 1,024 rows returns the first row for the last one."""
    import paddle

    real = paddle.nn.functional.scaled_dot_product_attention

    def attend(query, *given, **named):
        result = real(query, *given, **named)
        return paddle.concat([result[:-1], result[:1]]) if query.shape[0] == 1025 else result

    paddle.nn.functional.scaled_dot_product_attention = attend


@fault("15_numerics", detected_by=("operators.attention",))
def flash_attention_sees_a_later_key() -> None:
    """Causal flash attention leaves out the query's own key, except for the first query."""
    import paddle

    module = paddle.nn.functional.flash_attention
    real = module.flash_attention

    def attend(query, key, value, **named):
        right, weights = real(query, key, value, **named)
        shifted = real(
            query, paddle.concat([key[:, :1], key[:, :-1]], 1), paddle.concat([value[:, :1], value[:, :-1]], 1), **named
        )[0]
        return paddle.concat([right[:, :1], shifted[:, 1:]], 1), weights

    module.flash_attention = attend


@fault("15_numerics", detected_by=("operators.fused",))
def swiglu_gates_the_other_half() -> None:
    """Swiglu applies the sigmoid to the second input."""
    import paddle

    real = paddle.nn.functional.swiglu
    paddle.nn.functional.swiglu = lambda gate, up=None, name=None: real(up, gate) if up is not None else real(gate)


@fault("15_numerics", detected_by=("operators.fused",))
def fused_norm_without_epsilon() -> None:
    """The fused RMS norm ignores its epsilon."""
    import paddle.incubate.nn.functional as fused

    real = fused.fused_rms_norm
    fused.fused_rms_norm = lambda x, weight, bias, epsilon, *given, **named: real(x, weight, bias, 0.0, *given, **named)


@fault("15_numerics", detected_by=("operators.fused",))
def fused_dropout_add_forgets_its_gradient() -> None:
    """The fused dropout and addition gives no gradient to what it adds."""
    import paddle.incubate.nn.functional as fused

    real = fused.fused_dropout_add
    fused.fused_dropout_add = lambda x, y, **named: real(x, y.detach() + 0 * y, **named)
