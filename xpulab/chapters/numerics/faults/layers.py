"""Faults of products, norms, losses and attention that only some values of an axis show."""

from __future__ import annotations

from typing import Any

from xpulab.chapters.numerics.faults.operators import with_gradient, with_scaled_gradient
from xpulab.chapters.shared.fault import fault, paddle

_MATMUL = "paddle:matmul"
_LINEAR = "paddle.nn.functional:linear"
_LAYER_NORM = "paddle.nn.functional:layer_norm"
_LOSS = "paddle.nn.functional:cross_entropy"
_ATTENTION = "paddle.nn.functional:scaled_dot_product_attention"


def _in_float32(real: Any, tensors: Any, *given: Any, **named: Any) -> Any:
    """real of tensors of float64 in float32."""
    narrow = [each.astype("float32") if each is not None and each.dtype == paddle.float64 else each for each in tensors]
    return real(*narrow, *given, **named).astype(tensors[0].dtype)


# --------------------------------------------------------------------------------------------------------------- products


@fault(detected_by=("numerics.products",), wraps="paddle:addmm")
def addmm_exchanges_its_factors(addmm, given, x, y, beta=1.0, alpha=1.0, **named):
    """Addmm multiplies the product by beta and what is added by alpha."""
    return addmm(given, x, y, beta=alpha, alpha=beta, **named)


@fault(detected_by=("numerics.products",), wraps=_MATMUL)
def products_of_float64_in_float32(matmul, x, y, *given, **named):
    """Matmul of float64 is computed in float32."""
    return _in_float32(matmul, (x, y), *given, **named)


@fault(detected_by=("numerics.products",), wraps=_LINEAR)
def linear_reads_a_view_in_the_order_of_memory(linear, x, weight, bias=None, name=None):
    """A linear layer takes the elements of a transposed input in the order of memory."""
    is_transposed = x.ndim == 2 and not x.is_contiguous() and x.strides[0] < x.strides[1]
    return linear(x.T.contiguous().reshape(x.shape) if is_transposed else x, weight, bias)


@fault(detected_by=("numerics.products",), wraps=_MATMUL)
def right_factor_takes_rows_that_a_view_leaves_out(matmul, x, y, *given, **named):
    """Matmul takes rows side by side in memory where the right factor is a view of every second one."""
    if y.ndim == 2 and y.shape[0] > 1 and y.strides == [2 * y.shape[1], 1]:
        y = paddle.repeat_interleave(y, 2, axis=0)[: y.shape[0]]
    return matmul(x, y, *given, **named)


@fault(detected_by=("numerics.products",), wraps=_MATMUL)
def transpose_of_a_square_factor_is_forgotten(matmul, x, y, transpose_x=False, transpose_y=False, **named):
    """Matmul ignores transpose_y where the right factor is square."""
    return matmul(x, y, transpose_x, transpose_y and y.shape[-1] != y.shape[-2], **named)


@fault(detected_by=("numerics.products",), wraps="paddle:mm")
def products_end_after_1024_terms(mm, x, y, **named):
    """A product sums only the first 1,024 terms."""
    return mm(x[:, :1024], y[:1024], **named)


@fault(detected_by=("numerics.products",), after=_MATMUL)
def product_of_nothing_is_one(result, x, y, *given, **named):
    """Matmul gives ones where nothing is summed."""
    return result + 1 if 0 in x.shape and result.size else result


@fault(detected_by=("numerics.products",), wraps=_MATMUL)
def gradient_of_a_repeated_batch_is_a_mean(matmul, x, y, *given, **named):
    """The gradient of a factor that every member of a batch shares is their mean, not their sum."""
    if x.ndim > 2 and y.ndim == 2:
        y = with_gradient(y, lambda gradient: gradient / x.shape[0])
    return matmul(x, y, *given, **named)


@fault(detected_by=("numerics.products",), after="paddle:bmm")
def batched_products_end_at_65504(result, *given, **named):
    """Batched products of large numbers end at the largest number of float16."""
    return result.clip(-65504.0, 65504.0)


@fault(detected_by=("numerics.products",), wraps=_LINEAR)
def weight_learns_half_where_the_input_is_frozen(linear, x, weight, bias=None, name=None):
    """The gradient of a weight is half of what it should be where the input of the layer wants none."""
    return linear(x, with_gradient(weight, lambda gradient: gradient / 2) if x.stop_gradient else weight, bias)


@fault(detected_by=("numerics.products",), after="paddle:einsum")
def einsum_leaves_its_last_two_axes_in_order_of_the_input(result, equation, *given):
    """Einsum of three indices gives the last two axes of a square result in the other order."""
    is_square = result.ndim == 3 and result.shape[1] == result.shape[2]
    return result.transpose([0, 2, 1]) if is_square else result


# ------------------------------------------------------------------------------------------------------------------ norms


@fault(detected_by=("numerics.norms",), wraps="paddle:rsqrt")
def inverse_root_with_a_relative_error(rsqrt, x, **named):
    """Rsqrt, with which RMS norm divides, has a relative error of 1e-4."""
    return rsqrt(x, **named) * (1 + 1e-4)


@fault(detected_by=("numerics.norms",), wraps=_LAYER_NORM)
def layer_norm_of_float64_in_float32(norm, x, shape, weight=None, bias=None, epsilon=1e-05, name=None):
    """Layer norm of float64 is computed in float32."""
    return _in_float32(lambda x, weight, bias: norm(x, shape, weight, bias, epsilon), (x, weight, bias))


@fault(detected_by=("numerics.norms",), wraps=_LAYER_NORM)
def layer_norm_reads_a_view_in_the_order_of_memory(norm, x, *given, **named):
    """Layer norm takes the elements of a transposed input in the order of memory."""
    is_transposed = x.ndim == 2 and not x.is_contiguous() and x.strides[0] < x.strides[1]
    return norm(x.T.contiguous().reshape(x.shape) if is_transposed else x, *given, **named)


@fault(detected_by=("numerics.norms",), after=_LAYER_NORM)
def layer_norm_leaves_rows_beyond_1024(result, x, *given, **named):
    """Layer norm leaves the rows beyond the 1,024th at 0."""
    if x.shape[0] > 1024:
        return paddle.concat([result[:1024], paddle.zeros_like(result[1024:])])
    return result


@fault(detected_by=("numerics.norms",), wraps=_LAYER_NORM)
def variance_as_a_difference_of_means(_real, x, shape, weight=None, bias=None, epsilon=1e-05, name=None):
    """Layer norm takes the variance as the mean of squares less the square of the mean, which loses a small spread."""
    axes = list(range(-len(shape), 0))
    mean = x.mean(axis=axes, keepdim=True)
    variance = ((x * x).mean(axis=axes, keepdim=True) - mean * mean).clip(min=0.0)
    normal = (x - mean) / paddle.sqrt(variance + epsilon)
    normal = normal if weight is None else normal * weight.reshape(list(shape))
    return normal if bias is None else normal + bias.reshape(list(shape))


@fault(detected_by=("numerics.norms",), wraps=_LAYER_NORM)
def bias_needs_a_weight(norm, x, shape, weight=None, bias=None, epsilon=1e-05, name=None):
    """Layer norm ignores a bias that comes without a weight."""
    if weight is None and bias is not None:
        return norm(x, shape, None, 0 * bias, epsilon)
    return norm(x, shape, weight, bias, epsilon)


@fault(detected_by=("numerics.norms",), wraps=_LAYER_NORM)
def weight_learns_twice_where_the_bias_is_frozen(norm, x, shape, weight=None, bias=None, epsilon=1e-05, name=None):
    """The gradient of a norm's weight is doubled where its bias is frozen."""
    if weight is not None and bias is not None and bias.stop_gradient:
        weight = with_gradient(weight, lambda gradient: 2 * gradient)
    return norm(x, shape, weight, bias, epsilon)


# ----------------------------------------------------------------------------------------------------------------- losses


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def labels_are_not_smoothed(loss, x, labels, *given, **named):
    """Cross entropy ignores label_smoothing."""
    return loss(x, labels, *given, **{**named, "label_smoothing": 0.0})


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def loss_of_float64_in_float32(loss, x, labels, *given, **named):
    """Cross entropy of float64 is computed in float32."""
    named |= {"weight": None if (weight := named.get("weight")) is None else weight.astype("float32")}
    labels = labels.astype("float32") if labels.dtype == paddle.float64 else labels
    return loss(x.astype("float32"), labels, *given, **named).astype(x.dtype)


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def logits_are_read_in_the_order_of_memory(loss, x, *given, **named):
    """Cross entropy takes the elements of transposed logits in the order of memory."""
    is_transposed = x.ndim == 2 and not x.is_contiguous() and x.strides[0] < x.strides[1]
    return loss(x.T.contiguous().reshape(x.shape) if is_transposed else x, *given, **named)


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def classes_are_stored_in_8_bits(loss, x, labels, *given, **named):
    """A label above 127 becomes another one."""
    is_soft = "float" in str(labels.dtype)
    return loss(x, labels if is_soft else paddle.where(labels > 127, labels - 128, labels), *given, **named)


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def rows_beyond_2048_are_lost(loss, x, labels, **named):
    """The losses beyond the 2,048th row are 0."""
    found = loss(x, labels, **named)
    if found.size <= 2048:
        return found
    kept = (paddle.arange(found.size) < 2048).astype(found.dtype).reshape(found.shape)
    return found * kept


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def large_logits_lose_their_fraction(loss, x, labels, **named):
    """Cross entropy rounds logits above 256 to whole numbers, as bfloat16 does."""
    change = paddle.where(x > 256, x.round() - x, paddle.zeros_like(x)).detach()
    return loss(x + change, labels, **named)


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def mean_of_weighted_losses_counts_rows(loss, x, labels, weight=None, reduction="mean", **named):
    """The mean of weighted losses is divided by the number of rows, not by the sum of their weights."""
    if weight is None or reduction != "mean":
        return loss(x, labels, weight=weight, reduction=reduction, **named)
    return loss(x, labels, weight=weight, reduction="none", **named).mean()


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def nothing_counts_gives_nan(loss, x, labels, ignore_index=-100, reduction="mean", **named):
    """The mean is NaN where every label is ignored."""
    found = loss(x, labels, ignore_index=ignore_index, reduction=reduction, **named)
    return found + float("nan") if reduction == "mean" and bool((labels == ignore_index).all()) else found


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def sum_of_losses_is_their_mean(loss, x, labels, reduction="mean", **named):
    """Cross entropy gives the mean where the sum was asked for."""
    return loss(x, labels, reduction="mean" if reduction == "sum" else reduction, **named)


@fault(detected_by=("numerics.cross-entropy",), wraps=_LOSS)
def classes_of_the_first_axis_are_shifted(loss, x, labels, axis=-1, **named):
    """Cross entropy along the first axis takes each class for the one before it."""
    return loss(paddle.roll(x, 1, axis=0) if axis == 0 else x, labels, axis=axis, **named)


# -------------------------------------------------------------------------------------------------------------- attention


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def mask_of_bool_bars_what_it_should_allow(attention, query, key, value, attn_mask=None, *given, **named):
    """A mask of bool bars the keys that it should allow."""
    if attn_mask is not None and attn_mask.dtype == paddle.bool:
        attn_mask = ~attn_mask
    return attention(query, key, value, attn_mask, *given, **named)


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def attention_of_float64_in_float32(attention, query, key, value, attn_mask=None, *given, **named):
    """Attention of float64 is computed in float32."""
    is_of_numbers = attn_mask is not None and attn_mask.dtype != paddle.bool
    mask = attn_mask.astype("float32") if is_of_numbers else attn_mask
    narrow = (each.astype("float32") for each in (query, key, value))
    return attention(*narrow, mask, *given, **named).astype(query.dtype)


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def keys_are_read_in_the_order_of_memory(attention, query, key, *given, **named):
    """Attention takes the elements of transposed keys in the order of memory."""
    is_transposed = not key.is_contiguous() and key.strides[0] < key.strides[-1]
    return attention(
        query, key.transpose([3, 2, 1, 0]).contiguous().reshape(key.shape) if is_transposed else key, *given, **named
    )


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def last_key_is_left_out_where_keys_are_more(attention, query, key, value, attn_mask=None, *given, **named):
    """Attention leaves out the last key where there are more keys than queries."""
    if key.shape[1] > query.shape[1] > 1:
        key, value = key[:, :-1], value[:, :-1]
        attn_mask = None if attn_mask is None else attn_mask[..., :-1]
    return attention(query, key, value, attn_mask, *given, **named)


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def every_row_has_the_padding_of_the_first(attention, query, key, value, attn_mask=None, *given, **named):
    """Attention takes the mask of the first row of a batch for all of them."""
    mask = attn_mask if attn_mask is None else attn_mask[:1]
    return attention(query, key, value, mask, *given, **named)


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def values_learn_half_where_the_keys_are_frozen(attention, query, key, value, *given, **named):
    """The gradient of the values is half of what it should be where the keys are frozen."""
    if key.stop_gradient and not value.stop_gradient:
        value = with_scaled_gradient(value, 0.5)
    return attention(query, key, value, *given, **named)


@fault(detected_by=("operators.attention",), wraps=_ATTENTION)
def scores_below_zero_are_lost(attention, query, *given, **named):
    """Attention takes negative queries for 0."""
    return attention(paddle.nn.functional.relu(query), *given, **named)
