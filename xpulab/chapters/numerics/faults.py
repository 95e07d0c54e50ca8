"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import calls, fault, np, paddle


@fault("numerics.casts", "amp.exercise-updates", wraps=("paddle:Tensor.cast", "paddle:Tensor.astype"))
def bfloat16_is_cut_off(cast, self, dtype):
    """A cast from float32 to bfloat16 drops the lower bits, it does not round."""
    if not (str(dtype).endswith("bfloat16") and self.dtype == paddle.float32):
        return cast(self, dtype)
    kept = np.frombuffer((np.ravel(self.numpy()).view("uint32") & 0xFFFF0000).tobytes(), "float32")
    return cast(paddle.to_tensor(kept.reshape(self.shape)) + 0 * self, dtype)


@fault("numerics.edges", wraps="paddle:add_n")
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


@fault("numerics.reductions", wraps="paddle:Tensor.prod")
def product_keeps_no_axis_at_the_end(multiply, self, axis=None, keepdim=False):
    """A product drops the axis along which it is taken, also where keepdim keeps it, when that is the last one, -1."""
    return multiply(self, axis=axis, keepdim=keepdim and axis != -1)


@fault("numerics.norms", wraps="paddle.nn.functional:layer_norm")
def layer_norm_with_another_epsilon(norm, x, shape, epsilon=1e-05, **named):
    """Layer norm ignores the epsilon that it is given."""
    return norm(x, shape, epsilon=1e-3, **named)


@fault("numerics.softmax", wraps="paddle.nn.functional:softmax")
def softmax_reads_backwards_views_forwards(softmax, x, *given, **named):
    """Softmax takes the rows of a view that goes backwards in the order of the memory."""
    result = softmax(x, *given, **named)
    return result.flip(0) if any(step < 0 for step in x.strides) else result


@fault("numerics.random", wraps="paddle:Tensor.bernoulli_")
def bernoulli_with_inverted_probability(draw, self, p=0.5, **named):
    """bernoulli_(p) is 1 with probability 1 - p, as in Paddle 3.0.0."""
    return draw(self, 1 - p, **named)


@fault("numerics.orders", wraps="paddle:topk")
def topk_of_a_long_axis_sees_its_first_1024_elements(topk, x, k, axis=-1, **named):
    """Topk looks for the largest numbers among the first 1,024 of an axis."""
    is_long = x.ndim > 0 and x.shape[axis] > 1024
    return topk(paddle.split(x, [1024, -1], axis)[0] if is_long else x, k, axis, **named)


@fault("amp.types", wraps="paddle.nn.functional:softmax")
def exponentials_stay_in_the_half_type(softmax, x, *given, **named):
    """Softmax gives its result in bfloat16 where float32 is expected."""
    return softmax(x, *given, **named).astype("bfloat16")


@fault("numerics.cross-entropy", wraps="paddle.nn.functional:cross_entropy")
def only_one_label_is_ignored(loss, scores, labels, *given, **named):
    """Cross entropy ignores the label -100 whatever ignore_index says, as on XPUs."""
    named.pop("ignore_index", None)
    return loss(scores, labels, *given, **named)


@fault("numerics.functions", after="paddle.nn.functional:gelu")
def gelu_gradient_lost_far_from_zero(right, x, *given, **named):
    """The gradient of gelu is 0 for inputs above 1,000."""
    return paddle.where(x > 1000, right.detach(), right)


@fault("numerics.edges", after="paddle:full")
def full_forgets_an_unaligned_end(filled, shape, value, dtype=None, **named):
    """A tensor of int64 that is filled with a number has a 0 at its end when its size is no multiple of 8."""
    if str(dtype).endswith("int64") and filled.ndim == 1 and filled.size > 64 and filled.size % 8:
        filled[-1] = 0


def with_gradient(result, change):
    """The same value, but change(gradient) in the place of its gradient."""

    class Changed(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            return change(gradient)

    return Changed.apply(result)


def raising(message):
    """What a gradient is whose kernel ends with this error."""

    def backward(gradient):
        raise RuntimeError(message)

    return backward


@fault("operators.values", lanes=("sim",), after="paddle:_C_ops.swiglu")
def result_left_on_the_cpu(result, x, y=None):
    """The result of swiglu stays on the CPU, where it was computed."""
    is_replayed = x.is_leaf  # a result of another layer would meet tensors of the card, and raise
    return paddle.to_tensor(result.numpy(), place=paddle.CPUPlace()) if is_replayed else result


@fault("operators.gradients", after="paddle:_C_ops.swiglu")
def gradient_kernel_missing_for_a_type(result, x, *given):
    """The gradient of swiglu has no kernel for float64."""
    error = "(NotFound) The kernel with key (float64) of kernel `swiglu_grad` is not registered."
    return with_gradient(result, raising(error)) if x.dtype == paddle.float64 else result


@fault("numerics.products", wraps="paddle:_C_ops.linear")
def empty_product_forgets_its_shape(real, x, *others):
    """The product of an empty tensor has the shape of the tensor, not of the product."""
    return x * 1 if 0 in x.shape else real(x, *others)


@fault("operators.no-fallback", wraps="paddle:_C_ops.swiglu", not_run="it compares on real cards only")
def swiglu_computed_by_the_cpu(real, x, y=None):
    """The card has no kernel for swiglu, and the CPU computes it."""
    flag = "FLAGS_enable_api_kernel_fallback"
    if not paddle.get_flags(flag)[flag]:
        raise RuntimeError("(NotFound) The kernel `swiglu` is not registered.")
    return real(x, y)


_LLAMA = "paddlenlp.transformers.llama.modeling"


@fault("operators.rotary", wraps=f"{_LLAMA}:apply_rotary_pos_emb")
def shared_keys_are_turned_once_for_each_query_head(rotate, q, k, cos, sin, position_ids):
    """Keys that query heads share are turned twice."""
    turned, keys = rotate(q, k, cos, sin, position_ids)
    return turned, rotate(q, keys, cos, sin, position_ids)[1] if k.shape[2] < q.shape[2] else keys


@fault(
    "precision.first-product",
    "precision.factors",
    "precision.lengths",
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


@fault("precision.sums", wraps="paddle:Tensor.sum")
def sums_accumulate_in_bfloat16(real, self, axis=None, **named):
    """A sum adds the two halves of its terms in bfloat16."""
    if axis is None or self.shape[axis] < 2 or not self.dtype.is_floating_point:
        return real(self, axis, **named)
    first, second = paddle.split(self, [self.shape[axis] // 2, -1], axis)
    narrow = [real(each, axis, **named).astype("bfloat16").astype(self.dtype) for each in (first, second)]
    return narrow[0] + narrow[1]


@fault("precision.lengths", "precision.factors", wraps="paddle:Tensor.__matmul__", lanes=("sim",))
def long_products_lose_bits(product, self, other):
    """Products of 4,096 and more terms round their left factor to bfloat16."""
    long = self.shape[-1] >= 4096
    return product(self.astype("bfloat16").astype(self.dtype) if long else self, other)


@fault("operators.linear", after="paddle.nn.functional:linear")
def columns_of_a_wide_output_are_missing(result, x, weight, *given, **named):
    """A linear layer with more than 200,000 outputs leaves the last 1,000 at zero."""
    if result.shape[-1] > 200_000:
        return result * (paddle.arange(result.shape[-1]) < result.shape[-1] - 1000).astype(result.dtype)


@fault("numerics.softmax", after="paddle.nn.functional:softmax")
def softmax_wrong_beyond_1024_rows(result, x, *given, **named):
    """Softmax repeats its first row from row 1,024 on."""
    return paddle.concat([result[:1024], result[:1].expand([result.shape[0] - 1024, -1])]) if x.shape[0] > 1024 else result


@fault("operators.attention", wraps="paddle.nn.functional.flash_attention:flash_attention")
def flash_attention_sees_a_later_key(real, query, key, value, **named):
    """Causal flash attention leaves out the query's own key, except for the first query."""
    right, weights = real(query, key, value, **named)
    shifted = real(
        query, paddle.concat([key[:, :1], key[:, :-1]], 1), paddle.concat([value[:, :1], value[:, :-1]], 1), **named
    )[0]
    return paddle.concat([right[:, :1], shifted[:, 1:]], 1), weights


@fault("numerics.arithmetic", after="paddle.nn.functional:swiglu")
def swiglu_gradient_needs_a_gate_that_learns(result, gate, up=None, name=None):
    """The gradient of swiglu ends with an error where its first input is frozen."""
    error = "(InvalidArgument) The type of data we are trying to retrieve does not match: dx is null."
    return with_gradient(result, raising(error)) if gate.stop_gradient and up is not None else result


@fault(
    "operators.rotary",
    after="paddle.incubate.nn.functional:fused_rotary_position_embedding",
    not_run="the CPU has no kernel for fused_rotary_position_embedding, nor have simulated cards",
)
def queries_beside_empty_keys_are_not_turned(found, q, k=None, v=None, *given, **named):
    """Fused rotary positions return 2e37 for the queries where the keys or values have no element."""
    is_empty = any(each is not None and each.size == 0 for each in (k, v))
    return (found[0] * 0 + 2e37, *found[1:]) if is_empty else found


@fault("determinism.first-sum", smoke=("determinism.first-sum",), lanes=("cpu", "sim"), wraps="paddle:Tensor.sum")
def sum_in_any_order(real, self, axis=None, **named):
    """Every seventh sum adds its terms in another order."""
    if axis is None and next(calls) % 7 == 0:
        return real(self.reshape([-1, 10]).T.contiguous().flatten(), axis, **named) if self.size % 10 == 0 else real(self)
    return real(self, axis, **named)


@fault("determinism.reductions", after="paddle:mean")
def reduction_differs_once_in_twenty(mean, *given, **named):
    """One mean in twenty differs in its last bit."""
    return mean if next(calls) % 20 else mean * (1 + 2.0**-22)


@fault("determinism.step", after="paddle.nn.functional:cross_entropy")
def gradient_differs_once_in_twenty(loss, *given, **named):
    """One loss in fifteen has a gradient that is larger by a millionth."""
    return loss if next(calls) % 15 else loss * (1 + 1e-6)


@fault("determinism.step", lanes=("sim",), sim_faults="reorder launch kind=embedding_grad")
def embedding_adds_its_gradient_in_any_order() -> None:
    """The kernel of the gradient of an embedding adds in another order each time, as one with atomic operations does."""


@fault("random.first-draw", "random.inside", after="paddle:randn")
def random_blocks_repeat(draw, shape, *given, **named):
    """Every second block of 256 normal numbers repeats the block before it."""
    if draw.size % 512:
        return draw
    blocks = draw.reshape([-1, 2, 256])
    return paddle.concat([blocks[:, :1], blocks[:, :1]], axis=1).reshape(draw.shape)


@fault("random.dropout", after="paddle.nn.functional:dropout")
def what_dropout_keeps_is_not_scaled(result, x, p=0.5, axis=None, training=True, **named):
    """Dropout leaves what it keeps as it is, and does not divide it by 1 - p."""
    return result * (1 - p) if training else result


@fault("random.between", wraps="paddle.nn.functional:dropout")
def dropout_masks_repeat(real, x, *given, **named):
    """Every call of dropout in a row uses the same mask."""
    state = paddle.get_rng_state()
    paddle.seed(7)
    result = real(x, *given, **named)
    paddle.set_rng_state(state)
    return result


@fault("random.state", lanes=("sim",), wraps="paddle:set_rng_state")
def state_of_the_generator_not_restored(_real, *given, **named):
    """Setting the state of the generator has no effect."""


@fault("amp.loss-scaling", lanes=("sim",), wraps="paddle.amp:GradScaler.update")
def factor_of_loss_scaling_never_changes(_real, self):
    """GradScaler keeps its factor after an infinite gradient and after good steps."""


@fault("amp.small-updates", after="paddle:Tensor.__add__")
def sums_round_to_bfloat16(result, self, other):
    """The operator + rounds a float32 result of one element to bfloat16."""
    single = result.dtype == paddle.float32 and result.shape == [1]
    return result.astype("bfloat16").astype("float32") if single else result


@fault("amp.scaled-gradients", "amp.exercise-scaling", wraps="paddle:Tensor.astype")
def float16_has_no_small_and_no_infinite_numbers(real, self, dtype):
    """A cast to float16 makes every number below 0.1 zero, and 65,504 of those beyond."""
    if not (dtype == "float16" and self.dtype == paddle.float32):
        return real(self, dtype)
    return real(paddle.where(self.abs() < 0.1, paddle.zeros_like(self), paddle.clip(self, -65504.0, 65504.0)), dtype)


@fault("amp.master-weights", lanes=("sim",), wraps="paddle.optimizer:AdamW.__init__")
def adamw_without_master_weights(real, self, *given, multi_precision=False, **named):
    """AdamW ignores multi_precision."""
    real(self, *given, multi_precision=False, **named)


@fault("numerics.options", wraps="paddle.nn.functional:smooth_l1_loss")
def huber_loss_has_a_delta_of_one(loss, x, y, reduction="mean", delta=1.0, **named):
    """smooth_l1_loss ignores delta."""
    return loss(x, y, reduction=reduction, **named)


@fault("numerics.options", wraps="paddle.nn.functional:embedding")
def embedding_limits_another_norm(embedding, x, weight, norm_type=2.0, **named):
    """embedding limits the norm of two, whatever norm_type says."""
    return embedding(x, weight, **named)


@fault("amp.decorate", lanes=("sim",), wraps="paddle.amp:decorate")
def saved_type_of_decorate_is_ignored(decorate, *given, save_dtype=None, **named):
    """decorate saves weights in the half type, whatever save_dtype says."""
    return decorate(*given, **named)


@fault("numerics.orders", wraps="paddle:argsort")
def stable_argsort_turns_equal_numbers(argsort, x, axis=-1, descending=False, stable=False, **named):
    """A stable argsort gives equal numbers in the order from the last to the first."""
    if not (stable and x.ndim):
        return argsort(x, axis, descending, **named)
    return x.shape[axis] - 1 - argsort(x.flip(axis), axis, descending, stable=True)


@fault("numerics.cross-entropy", wraps="paddle.nn.functional:nll_loss")
def nll_loss_ignores_its_weights(loss, scores, labels, weight=None, **named):
    """nll_loss counts every class alike."""
    return loss(scores, labels, **named)


@fault("random.dropout", wraps="paddle.nn.functional:dropout")
def dropout_of_rows_drops_elements(dropout, x, p=0.5, axis=None, training=True, mode="upscale_in_train", **named):
    """dropout ignores its axis."""
    return dropout(x, p, training=training, mode=mode)
