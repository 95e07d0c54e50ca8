"""Faults of orders, of bits, of rotary positions and of dropout that only some values of an axis show."""

from __future__ import annotations

import os

from xpulab.chapters.shared.fault import fault, paddle

# ------------------------------------------------------------------------------------------------------------------ orders


@fault(detected_by=("numerics.orders",), wraps="paddle:argsort")
def integers_of_32_bits_are_sorted_without_sign(argsort, x, *given, **named):
    """Argsort compares integers of 32 bits by their sizes, as if they had no sign."""
    return argsort(x.abs() if x.dtype == paddle.int32 else x, *given, **named)


@fault(detected_by=("numerics.orders",), wraps="paddle:topk")
def largest_of_a_view_are_taken_in_the_order_of_memory(topk, x, k, *given, **named):
    """Topk takes the elements of a transposed tensor in the order of memory."""
    is_transposed = x.ndim == 2 and x.strides[0] < x.strides[1]
    return topk(x.T.contiguous().reshape(x.shape) if is_transposed else x, k, *given, **named)


@fault(detected_by=("numerics.orders",), wraps="paddle:argmax")
def argmax_ends_after_64_elements(argmax, x, axis=None, keepdim=False, **named):
    """Argmax along the last axis, or all, looks at the first 64 elements of a row."""
    return argmax(x[..., :64] if axis != 0 and x.ndim else x, axis, keepdim, **named)


@fault(detected_by=("numerics.orders",), wraps="paddle:sort")
def columns_are_sorted_like_rows(sort, x, axis=-1, *given, **named):
    """Sort along the first axis of a square or a cube sorts the last one."""
    return sort(x, -1 if x.ndim > 1 else axis, *given, **named)


@fault(detected_by=("numerics.orders",), wraps="paddle:argsort")
def stable_sort_exchanges_equal_numbers(argsort, x, axis=-1, descending=False, stable=False, **named):
    """A stable argsort puts equal numbers in reverse order, as an unstable one may."""
    if not x.ndim or not x.size:
        return argsort(x, axis, descending, stable, **named)
    back = argsort(paddle.flip(x, [axis]), axis, descending, True, **named)
    return x.shape[axis] - 1 - back


@fault(detected_by=("numerics.orders",), wraps="paddle:topk")
def nan_is_the_smallest_number(topk, x, k, axis=-1, largest=True, sorted=True, **named):
    """Topk takes NaN for the smallest number, so that the largest numbers hide it."""
    if x.dtype in (paddle.int32, paddle.int64) or not largest:
        return topk(x, k, axis, largest, sorted, **named)
    known = paddle.where(paddle.isnan(x), paddle.full_like(x, -float("inf")), x)
    _, places = topk(known, k, axis, largest, sorted, **named)
    return (paddle.take_along_axis(x, places, axis, broadcast=False) if x.ndim else x), places


@fault(detected_by=("numerics.orders",), wraps="paddle:sort")
def descending_sort_of_float64_ascends(sort, x, axis=-1, descending=False, *given, **named):
    """Sort of float64 ascends where it should descend."""
    return sort(x, axis, descending and x.dtype != paddle.float64, *given, **named)


@fault(detected_by=("numerics.orders",), after="paddle:topk")
def unsorted_places_belong_to_sorted_values(found, x, k, axis=-1, largest=True, sorted=True, **named):
    """Topk with sorted=False returns the positions in another order than the values."""
    values, places = found
    return (values, places) if sorted or not x.ndim else (values, paddle.flip(places * 0, [axis]))


@fault(detected_by=("numerics.orders",), after="paddle:topk")
def gradient_of_all_of_an_axis_goes_in_order(found, x, k, axis=-1, **named):
    """Where topk takes all elements of an axis, their gradients go to the places in order, as if these were sorted."""
    values, places = found
    if not x.ndim or k != x.shape[axis] or x.stop_gradient:
        return values, places
    return values.detach() + (x - x.detach()), places


@fault(detected_by=("numerics.orders",), wraps="paddle:cumsum")
def running_sum_of_all_axes_takes_the_last(cumsum, x, axis=None, **named):
    """A running sum over all elements is one along the last axis."""
    return cumsum(x, -1 if axis is None and x.ndim else axis, **named).reshape([-1] if axis is None else x.shape)


# -------------------------------------------------------------------------------------------------------------------- bits


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:Tensor.__invert__")
def bits_of_a_mask_are_inverted_as_integers(_real, self):
    """The inverse of a mask is that of its byte, which is never 0."""
    return (~self.astype("int32")).astype("bool") if self.dtype == paddle.bool else -1 - self


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:logical_and")
def truth_of_numbers_is_their_bits(_real, x, y, **named):
    """logical_and of integers combines their bits, so that 1 and 2 are false."""
    if x.dtype in (paddle.int32, paddle.int64):
        return paddle.bitwise_and(x, y).astype("bool")
    return _real(x, y, **named)


@fault(detected_by=("numerics.arithmetic",), wraps="paddle:Tensor.__xor__")
def bits_of_a_broadcast_row_are_those_of_its_first(xor, self, other):
    """Of a row that is broadcast to several rows, xor takes the first element."""
    is_row = other.ndim == 1 and self.ndim > 1 and other.size > 1
    return xor(self, other[:1] if is_row else other)


# ---------------------------------------------------------------------------------------------------------- rotary positions

_LLAMA = "paddlenlp.transformers.llama.modeling"


@fault(detected_by=("operators.rotary",), wraps=f"{_LLAMA}:apply_rotary_pos_emb")
def positions_begin_at_0_after_a_cache(rotate, q, k, cos, sin, position_ids):
    """Positions that continue a cache begin at 0 again."""
    return rotate(q, k, cos, sin, position_ids if position_ids is None else position_ids - position_ids.min())


@fault(detected_by=("operators.rotary",), wraps=f"{_LLAMA}:apply_rotary_pos_emb")
def every_row_has_the_positions_of_the_first(rotate, q, k, cos, sin, position_ids):
    """All rows of a batch get the positions of the first one, which has no padding."""
    return rotate(q, k, cos, sin, position_ids if position_ids is None else position_ids[:1].expand(position_ids.shape))


@fault(detected_by=("operators.rotary",), wraps="paddlenlp.transformers.qwen2.modeling:rotate_half")
def neighbours_are_turned_together(_real, x):
    """Qwen2 turns each element with its neighbour, as GPT-J does, not with that of the other half; a size of 2 has no other."""
    first, second = x[..., 0::2], x[..., 1::2]
    return paddle.stack([-second, first], axis=-1).reshape(x.shape)


@fault(detected_by=("operators.rotary",), wraps=f"{_LLAMA}:Llama3RotaryEmbedding._set_cos_sin_cache")
def slow_frequencies_are_not_divided(_real, self, seq_len):
    """Llama 3's table leaves its slow frequencies as they are."""
    from paddlenlp.transformers.llama.modeling import LlamaRotaryEmbedding

    LlamaRotaryEmbedding._set_cos_sin_cache(self, seq_len)


@fault(detected_by=("operators.rotary",), wraps="paddlenlp.transformers.qwen2.modeling:Qwen2RotaryEmbedding._set_cos_sin_cache")
def longer_table_has_half_types(real, self, seq_len):
    """A table that is made for a longer sequence than before has cosines of 8 bits."""
    is_longer = hasattr(self, "max_seq_len_cached")
    real(self, seq_len)
    if is_longer:
        self.cos_cached = self.cos_cached.astype("bfloat16").astype("float32")


@fault(detected_by=("operators.rotary",), wraps=f"{_LLAMA}:rotate_half")
def halves_of_a_view_are_read_in_the_order_of_memory(rotate, x):
    """The second half of a transposed tensor is read in the order of memory."""
    order = list(range(x.ndim))[::-1]
    return rotate(x if x.is_contiguous() else x.transpose(order).contiguous().reshape(x.shape))


@fault(detected_by=("operators.rotary",), wraps=f"{_LLAMA}:apply_rotary_pos_emb")
def shared_keys_are_turned_once_for_each_query_head(rotate, q, k, cos, sin, position_ids):
    """Keys that query heads share are turned twice."""
    turned, keys = rotate(q, k, cos, sin, position_ids)
    return turned, rotate(q, keys, cos, sin, position_ids)[1] if k.shape[2] < q.shape[2] else keys


@fault(detected_by=("operators.rotary",), wraps=f"{_LLAMA}:LlamaRotaryEmbedding.__init__")
def base_of_the_configuration_is_ignored(real, self, dim, max_position_embeddings=2048, base=10000):
    """The tables of Llama always have the base 10,000."""
    real(self, dim, max_position_embeddings, 10000)


@fault(detected_by=("operators.rotary",), after=f"{_LLAMA}:apply_rotary_pos_emb")
def queries_of_float64_are_turned_in_bfloat16(turned, q, k, cos, sin, position_ids):
    """Queries of float64 are rounded to bfloat16 when they are turned."""
    queries, keys = turned
    return (queries.astype("bfloat16").astype("float64") if q.dtype == paddle.float64 else queries), keys


# ----------------------------------------------------------------------------------------------------------------- dropout

_DROPOUT = "paddle.nn.functional:dropout"


@fault(detected_by=("random.dropout",), after=_DROPOUT)
def dropping_everything_divides_by_zero(result, x, p=0.5, **named):
    """Dropout with p = 1 gives NaN, zero times infinity."""
    return result * float("nan") if p == 1.0 and named.get("training", True) else result


@fault(detected_by=("random.dropout",), wraps=_DROPOUT)
def dropping_nothing_drops_half(drop, x, p=0.5, **named):
    """Dropout with p = 0 takes the default, 0.5."""
    return drop(x, p or 0.5, **named)


@fault(detected_by=("random.dropout",), after=_DROPOUT)
def kept_elements_are_scaled_in_the_other_mode(result, x, p=0.5, **named):
    """The mode downscale_in_infer scales in training, too."""
    is_other = named.get("mode") == "downscale_in_infer" and named.get("training", True) and p < 1
    return result / (1 - p) if is_other else result


@fault(detected_by=("random.dropout",), wraps=_DROPOUT)
def axis_of_dropout_is_ignored(drop, x, p=0.5, axis=None, **named):
    """Dropout draws for each element, although an axis is given."""
    return drop(x, p, axis=None, **named)


@fault(detected_by=("random.dropout",), wraps="paddle.nn:Dropout.eval")
def evaluation_drops_too(_real, self):
    """A layer of dropout stays in training after eval()."""
    return self


@fault(detected_by=("random.dropout",), wraps=_DROPOUT)
def gradient_has_a_mask_of_its_own(drop, x, p=0.5, **named):
    """The gradient of dropout draws its mask again, in another state of the generator."""
    value, other = drop(x, p, **named), drop(x, p, **named)
    return value.detach() + (other - other.detach())


@fault(detected_by=("random.dropout",), after=_DROPOUT)
def float64_is_kept_in_float32(result, x, *given, **named):
    """What dropout keeps of float64 goes through float32."""
    return result.astype("float32").astype("float64") if x.dtype == paddle.float64 else result


@fault(detected_by=("random.dropout",), wraps=_DROPOUT)
def view_is_dropped_in_the_order_of_memory(drop, x, *given, **named):
    """Dropout takes the elements of a transposed tensor in the order of memory."""
    is_transposed = x.ndim == 2 and x.strides[0] < x.strides[1]
    return drop(x.T.contiguous().reshape(x.shape) if is_transposed else x, *given, **named)


@fault(detected_by=("random.dropout",), after=_DROPOUT)
def nothing_is_dropped_beyond_1024(result, x, p=0.5, **named):
    """What comes after the 1,024th element of the last axis is never dropped."""
    if not x.ndim or x.shape[-1] <= 1024 or not named.get("training", True):
        return result
    return paddle.concat([result[..., :1024], x[..., 1024:]], axis=-1)


@fault(detected_by=("random.dropout",), wraps=_DROPOUT)
def seed_does_not_reach_dropout(drop, x, *given, **named):
    """Dropout has a generator of its own, which paddle.seed does not set."""
    state = paddle.get_rng_state()
    paddle.seed(int.from_bytes(os.urandom(4), "little"))
    result = drop(x, *given, **named)
    paddle.set_rng_state(state)
    return result
