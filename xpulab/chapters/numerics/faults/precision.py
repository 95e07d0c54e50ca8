"""Faults of operators that lose bits, or are wrong at some sizes."""

from __future__ import annotations

from xpulab.chapters.numerics.faults.operators import raising, with_gradient, with_scaled_gradient
from xpulab.chapters.shared.fault import fault, np, paddle

ATTENTION = "paddle.nn.functional:scaled_dot_product_attention"


def _rounded(x):
    """The value in bfloat16, with the gradient of the whole value."""
    return x + (x.astype("bfloat16").astype(x.dtype) - x).detach()


@fault(
    detected_by=("precision.first-product", "precision.factors", "precision.lengths"),
    smoke=("precision.first-product",),
    wraps="paddle:Tensor.__matmul__",
)
def products_in_tf32(product, self, other):
    """The operator @ rounds the factors of float32 products to ten bits."""

    def rounded(tensor):
        if tensor.dtype != paddle.float32:
            return tensor
        bits = (tensor.numpy().view("uint32") + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        return tensor + (paddle.to_tensor(bits.view("float32")) - tensor).detach()

    return product(rounded(self), rounded(other))


@fault(detected_by=("precision.factors", "operators.linear"), after="paddle.nn.functional:linear")
def linear_gradients_in_bfloat16(result, *given, **named):
    """The gradients of a linear layer are computed from gradients in bfloat16."""
    return with_gradient(result, lambda gradient: gradient.astype("bfloat16").astype(gradient.dtype))


@fault(detected_by=("precision.factors", "operators.attention"), wraps=ATTENTION)
def attention_values_in_bfloat16(real, query, key, value, *given, **named):
    """Attention rounds the values to bfloat16."""
    return real(query, key, _rounded(value), *given, **named)


@fault(detected_by=("precision.factors",), wraps=ATTENTION)
def attention_scores_in_bfloat16(real, query, *given, **named):
    """Attention rounds the queries to bfloat16."""
    return real(_rounded(query), *given, **named)


@fault(detected_by=("precision.factors",), wraps="paddle.nn.functional:conv2d")
def convolution_in_bfloat16(real, x, *given, **named):
    """A convolution rounds its input to bfloat16."""
    return real(_rounded(x), *given, **named)


@fault(detected_by=("precision.sums",), wraps="paddle:Tensor.sum")
def sums_accumulate_in_bfloat16(real, self, axis=None, **named):
    """A sum adds the two halves of its terms in bfloat16."""
    if axis is None or self.shape[axis] < 2 or not self.dtype.is_floating_point:
        return real(self, axis, **named)
    first, second = paddle.split(self, [self.shape[axis] // 2, -1], axis)
    narrow = [real(each, axis, **named).astype("bfloat16").astype(self.dtype) for each in (first, second)]
    return narrow[0] + narrow[1]


@fault(detected_by=("precision.lengths",), also_on=("sim",), wraps="paddle:Tensor.__matmul__")
def long_products_lose_bits(product, self, other):
    """Products of 4,096 and more terms round their left factor to bfloat16."""
    long = self.shape[-1] >= 4096
    return product(self.astype("bfloat16").astype(self.dtype) if long else self, other)


@fault(detected_by=("operators.linear",), after="paddle.nn.functional:linear")
def columns_of_a_wide_output_are_missing(result, x, weight, *given, **named):
    """A linear layer with more than 200,000 outputs leaves the last 1,000 at zero."""
    if result.shape[-1] > 200_000:
        return result * (paddle.arange(result.shape[-1]) < result.shape[-1] - 1000).astype(result.dtype)


@fault(detected_by=("operators.linear",), wraps="paddle.nn.functional:linear")
def long_linear_layers_drop_the_last_terms(real, x, weight, *given, **named):
    """A linear layer with more than 8,192 inputs leaves out the last 16."""
    size = x.shape[-1] - 16 if x.shape[-1] > 8192 else x.shape[-1]
    return real(x[..., :size], weight[:size], *given, **named)


@fault(detected_by=("operators.boundaries",), after="paddle.nn.functional:linear")
def last_row_of_an_odd_size_not_computed(result, x, weight, *given, **named):
    """The last row of a linear layer's output is zero when 33 or 129 rows are computed."""
    if x.shape[0] in (33, 129):
        return result * (paddle.arange(x.shape[0]) < x.shape[0] - 1).astype(result.dtype).unsqueeze(1)


@fault(detected_by=("operators.boundaries",), after="paddle.nn.functional:softmax")
def softmax_wrong_beyond_1024_rows(result, x, *given, **named):
    """Softmax repeats its first row from row 1,024 on."""
    return paddle.concat([result[:1024], result[:1].expand([result.shape[0] - 1024, -1])]) if x.shape[0] > 1024 else result


@fault(detected_by=("operators.boundaries",), wraps="paddle.nn.functional:embedding")
def embedding_wrong_beyond_1024_tokens(real, tokens, weight, *given, **named):
    """An embedding returns the row of the first token for every token from number 2,048 on."""
    if tokens.ndim == 1 and tokens.shape[0] > 2048:
        tokens = paddle.concat([tokens[:2048], tokens[:1].expand([tokens.shape[0] - 2048])])
    return real(tokens, weight, *given, **named)


@fault(detected_by=("operators.attention",), wraps=ATTENTION)
def attention_scale_of_a_padded_head(real, query, *given, **named):
    """Attention with heads of 80 scales its scores as if they had 128, the size to which the kernel pads them."""
    return real(query * (80 / 128) ** 0.5 if query.shape[-1] == 80 else query, *given, **named)


@fault(detected_by=("operators.attention",), after="paddle:repeat_interleave")
def shared_key_heads_get_one_gradient(result, x, repeats, axis=None, name=None):
    """A key head that two heads share gets the gradient of the first one only."""
    if axis == 2:
        first = (paddle.arange(result.shape[2]) % repeats == 0).astype(x.dtype).reshape([1, 1, -1, 1])
        return with_scaled_gradient(result, first)


@fault(detected_by=("operators.attention",), after=ATTENTION)
def attention_wrong_beyond_batch_1024(result, query, *given, **named):
    """Attention of a batch with more than 1,024 rows returns the first row for the last one."""
    return paddle.concat([result[:-1], result[:1]]) if query.shape[0] == 1025 else result


@fault(detected_by=("operators.attention",), wraps="paddle.nn.functional.flash_attention:flash_attention")
def flash_attention_sees_a_later_key(real, query, key, value, **named):
    """Causal flash attention leaves out the query's own key, except for the first query."""
    right, weights = real(query, key, value, **named)
    shifted = real(
        query, paddle.concat([key[:, :1], key[:, :-1]], 1), paddle.concat([value[:, :1], value[:, :-1]], 1), **named
    )[0]
    return paddle.concat([right[:, :1], shifted[:, 1:]], 1), weights


@fault(detected_by=("operators.fused",), wraps="paddle.nn.functional:swiglu")
def swiglu_gates_the_other_half(real, gate, up=None, name=None):
    """Swiglu applies the sigmoid to the second input."""
    return real(up, gate) if up is not None else real(gate)


@fault(detected_by=("operators.fused",), wraps="paddle.incubate.nn.functional:fused_rms_norm", kernel="fused_rms_norm_quant")
def fused_norm_without_epsilon(real, x, weight, bias, epsilon, *given, **named):
    """The fused RMS norm ignores its epsilon."""
    return real(x, weight, bias, 0.0, *given, **named)


@fault(detected_by=("operators.fused",), wraps="paddle.incubate.nn.functional:fused_dropout_add")
def fused_dropout_add_forgets_its_gradient(real, x, y, **named):
    """The fused dropout and addition gives no gradient to what it adds."""
    return real(x, y.detach() + 0 * y, **named)


@fault(detected_by=("operators.frozen",), after="paddle.nn.functional:swiglu")
def swiglu_gradient_needs_a_gate_that_learns(result, gate, up=None, name=None):
    """The gradient of swiglu ends with an error where its first input is frozen."""
    error = "(InvalidArgument) The type of data we are trying to retrieve does not match: dx is null."
    return with_gradient(result, raising(error)) if gate.stop_gradient and up is not None else result


@fault(detected_by=("operators.frozen",), wraps=ATTENTION)
def keys_learn_only_with_their_values(real, query, key, value, *given, **named):
    """Attention gives the keys no gradient where the values are frozen."""
    return real(query, key.detach() + 0 * key if value.stop_gradient else key, value, *given, **named)


@fault(detected_by=("operators.frozen",), after="paddle.distributed.fleet.recompute.recompute:detach_variable")
def recomputed_inputs_all_learn(copies, inputs):
    """A function that is recomputed computes the gradients of its frozen inputs, too."""
    for copy in copies:
        copy.stop_gradient = False


@fault(
    detected_by=("operators.empty",),
    after="paddle.incubate.nn.functional:fused_rotary_position_embedding",
    not_run="the CPU has no kernel for fused_rotary_position_embedding, nor have simulated cards",
)
def queries_beside_empty_keys_are_not_turned(found, q, k=None, v=None, *given, **named):
    """Fused rotary positions return 2e37 for the queries where the keys or values have no element."""
    is_empty = any(each is not None and each.size == 0 for each in (k, v))
    return (found[0] * 0 + 2e37, *found[1:]) if is_empty else found


@fault(detected_by=("amp.exercise-scaling",), wraps="paddle:Tensor.astype")
def numbers_beyond_float16_become_its_largest(astype, self, dtype):
    """A cast to float16 makes 65,504 of larger numbers, so that no gradient is ever infinite."""
    is_half = dtype == "float16" and self.dtype == paddle.float32
    return astype(paddle.clip(self, -65504.0, 65504.0) if is_half else self, dtype)
