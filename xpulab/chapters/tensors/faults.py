"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells


@fault(
    detected_by=("indexing.smoke-view", "indexing.views", "indexing.in-place", "indexing.exercise-view"),
    smoke=("indexing.smoke-view",),
    wraps="paddle:Tensor.__getitem__",
)
def slices_are_copies(real, self, index):
    """A slice of a tensor is a copy, although stride kernels are in use."""
    return real(self, index).clone()


@fault(detected_by=("indexing.two-modes", "indexing.views"), wraps="paddle:set_flags")
def stride_flag_without_effect(real, flags):
    """Setting FLAGS_use_stride_kernel changes nothing."""
    return real({name: value for name, value in flags.items() if "stride" not in name})


@fault(detected_by=("indexing.rules",), wraps="paddle:Tensor.__getitem__")
def integers_count_as_positions(real, self, index):
    """An integer beside a tensor of positions counts as one, as in numpy."""
    tensors = isinstance(index, tuple) and any(isinstance(each, paddle.Tensor) and each.ndim for each in index)
    if (tensors and not self.is_contiguous()) or not tensors:
        return real(self, index)
    array = self.numpy()[tuple(each.numpy() if isinstance(each, paddle.Tensor) else each for each in index)]
    return paddle.to_tensor(array)


@fault(detected_by=("indexing.get",), wraps="paddle:Tensor.__getitem__")
def negative_positions_off_by_one(real, self, index):
    """Negative positions in a tensor count from the element before the last."""

    def shifted(item):
        if isinstance(item, paddle.Tensor) and item.ndim and item.dtype == paddle.int64:
            return paddle.where(item == -1, item - 1, item)
        return item

    return real(self, tuple(map(shifted, index)) if isinstance(index, tuple) else shifted(index))


@fault(
    detected_by=("indexing.get", "indexing.set"),
    wraps=("paddle:Tensor.__getitem__", "paddle:Tensor.__setitem__"),
)
def steps_backwards_go_forwards(real, self, index, *value):
    """A slice with step -1 gives the right elements in forward order."""

    def forwards(item, size):
        if isinstance(item, slice) and item.step == -1 and item.stop is None and item.start is not None:
            return slice(0, item.start % size + 1)
        return item

    if isinstance(index, tuple) and None not in map(type, index) and len(index) == len(self.shape) > 1:
        index = tuple(map(forwards, index, self.shape))
    return real(self, index, *value)


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def write_under_a_mask_lost(real, self, index, value):
    """An assignment through a mask of bfloat16 elements changes nothing."""
    items = index if isinstance(index, tuple) else (index,)
    masks = [each for each in items if isinstance(each, paddle.Tensor) and each.dtype == paddle.bool]
    if not (masks and self.dtype == paddle.bfloat16):
        real(self, index, value)


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def write_touches_the_next_element(real, self, index, value):
    """An assignment by an integer on each axis also changes the first element of the tensor."""
    real(self, index, value)
    if isinstance(index, tuple) and all(isinstance(each, int) for each in index):
        real(self, (0,) * len(index), value)


@fault(detected_by=("indexing.in-place",), also_on=("sim",), wraps="paddle:Tensor.add_")
def in_place_addition_makes_a_copy(_real, self, other, name=None):
    """The operator add_ returns a new tensor and leaves the old one as it was."""
    return paddle.add(self, other)


@fault(detected_by=("indexing.refused",), wraps="paddle:Tensor.__getitem__")
def position_out_of_range_is_clipped(real, self, index):
    """An integer out of range is taken for the last position."""
    return real(self, min(index, self.shape[0] - 1) if isinstance(index, int) else index)


@fault(detected_by=("indexing.in-range",), breaks=CELLS)
def check_of_positions_forgets_the_end() -> None:
    """The lesson's function that checks positions accepts those beyond the end."""
    replace_in_cells("if lowest < -size or highest >= size:", "if lowest < -size:")


@fault(detected_by=("indexing.get",), wraps="paddle:Tensor.contiguous")
def contiguous_does_nothing(_real, self):
    """The operator contiguous returns a view as it is, so that the workaround for views has no effect."""
    return self


@fault(
    detected_by=("index-gradients.repeated", "indexing.get", "index-gradients.exercise-rows"),
    replaces="paddle:Tensor.__getitem__",
)
def repeated_row_counted_once(real):
    """The gradient of a row that is read twice is that of one reading."""

    class Once(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x, positions):
            ctx.save_for_backward(positions)
            ctx.shape = x.shape
            return real(x, positions)

        @staticmethod
        def backward(ctx, gradient):
            (positions,) = ctx.saved_tensor()
            return paddle.scatter(paddle.zeros(ctx.shape, gradient.dtype), positions, gradient), None

    def getitem(self, index):
        if isinstance(index, paddle.Tensor) and index.dtype == paddle.int64 and index.ndim == 1 and not self.stop_gradient:
            return Once.apply(self, index)
        return real(self, index)

    return getitem


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def gradient_of_an_assigned_value_lost(real, self, index, value):
    """A value that is assigned to a slice gets no gradient."""
    detach = isinstance(index, slice) and isinstance(value, paddle.Tensor)
    real(self, index, value.detach() if detach else value)


@fault(detected_by=("indexing.set", "index-gradients.by-index"), wraps="paddle:Tensor.__setitem__")
def overwritten_elements_keep_their_gradient(real, self, index, value):
    """Elements of float32 that an assignment by integers and slices overwrites keep the gradient of the old value."""
    items = index if isinstance(index, tuple) else (index,)
    is_basic = all(isinstance(item, (int, slice)) for item in items) and self.dtype == paddle.float32
    before = self.clone() if is_basic and not self.stop_gradient else None
    real(self, index, value)
    if before is not None:
        self.add_(before - before.detach())


@fault(detected_by=("index-gradients.known-defects",), wraps="paddle:where")
def where_sends_its_gradient_to_the_other_side(real, condition, x, y):
    """The gradient of paddle.where with respect to its first argument is multiplied by the inverted mask."""
    right = real(condition, x.detach() if hasattr(x, "detach") else x, y)
    wrong = real(condition, paddle.zeros_like(y), x) if hasattr(x, "detach") else 0
    return right + wrong - (wrong.detach() if hasattr(wrong, "detach") else 0)


@fault(detected_by=("index-gradients.too-late",), also_on=("sim",), wraps="paddle:Tensor.backward")
def overwriting_is_not_noticed(real, self, *args, **kwargs):
    """Overwriting a value that backward needs raises no error."""
    try:
        real(self, *args, **kwargs)
    except RuntimeError as error:
        if "version" not in str(error):
            raise


@fault(detected_by=("large-tensors.elements",), wraps=("paddle:Tensor.__getitem__", "paddle:Tensor.__setitem__"))
def positions_have_31_bits(real, self, index, *value):
    """Positions of elements are computed in 31 bits."""
    return real(self, index % 2**31 if isinstance(index, int) and index > 0 else index, *value)


@fault(
    level="standard",
    detected_by=("large-tensors.masks", "large-tensors.fills"),
    wraps=("paddle:Tensor.__setitem__", "paddle:Tensor.fill_", "paddle:Tensor.zero_"),
)
def long_tensors_end_at_31_bits(real, self, *given):
    """Operators on all elements of a tensor, and masks, reach its first 2^31 elements only."""
    is_position = len(given) == 2 and not isinstance(given[0], paddle.Tensor)
    if self.size <= 2**31 or is_position:
        return real(self, *given)
    end = self[2**31 :].clone()
    result = real(self, *given)
    self[2**31 :] = end
    return result


@fault(detected_by=("decomposition.kept", "decomposition.names"), wraps="paddle.decomposition:decompose")
def decomposition_does_nothing(_real, program, results, *rest, **kwargs):
    """The function decompose returns the program as it is."""
    return results


@fault(detected_by=("decomposition.kept", "decomposition.names"), wraps="paddle.base.core:_set_prim_forward_blacklist")
def kept_operators_are_decomposed(_real, *names):
    """Operators on the list of those to be kept are decomposed too."""


@fault(detected_by=("decomposition.values",), also_on=("sim",), wraps="paddle.nn.functional:gelu")
def gelu_of_a_program_is_approximate(real, x, approximate=False, name=None):
    """In a program gelu is computed with tanh, in eager mode with the error function."""
    return real(x, approximate or not paddle.in_dynamic_mode(), name)


@fault(detected_by=("indexing.out-of-range",), wraps="paddle:Tensor.__getitem__")
def positions_out_of_range_are_clipped_without_strides(real, self, index):
    """Without stride kernels tensors of positions beyond the end stand for the last element."""
    if isinstance(index, tuple) and not paddle.get_flags("FLAGS_use_stride_kernel")["FLAGS_use_stride_kernel"]:
        pairs = zip(index, self.shape, strict=False)
        is_tensor = [isinstance(each, paddle.Tensor) and each.dtype == paddle.int64 for each in index]
        if all(is_tensor):
            index = tuple(each.clip(-size, size - 1) for each, size in pairs)
    return real(self, index)


@fault(detected_by=("index-gradients.read",), wraps="paddle:index_select")
def gradient_of_selected_columns_lost(real, x, index, axis=0, **named):
    """Tensors that are read by index_select along the second axis get no gradient of their first position."""
    whole = real(x, index, axis, **named)
    return whole if axis == 0 else paddle.concat([whole[:, :1].detach(), whole[:, 1:]], axis=1)


@fault(detected_by=("indexing.writes",), wraps="paddle:put_along_axis")
def gradient_of_put_values_lost(real, x, indices, values, axis, *given, **named):
    """The values of put_along_axis get no gradient."""
    return real(x, indices, values.detach() if isinstance(values, paddle.Tensor) else values, axis, *given, **named)


@fault(detected_by=("indexing.get",), wraps="paddle:Tensor.__getitem__")
def integers_are_read_as_float64(real, self, index):
    """Reading int64 by a tensor goes through float64, which rounds integers beyond 2^53."""
    items = index if isinstance(index, tuple) else (index,)
    if self.dtype == paddle.int64 and any(isinstance(item, paddle.Tensor) for item in items):
        return real(self.astype("float64"), index).astype("int64")
    return real(self, index)


@fault(detected_by=("indexing.get",), wraps="paddle:Tensor.__getitem__")
def last_element_of_a_long_axis_is_lost(real, self, index):
    """A slice of rows of more than 1024 elements ends with the element before the last, twice."""
    result = real(self, index)
    if isinstance(index, slice) and self.ndim == 2 and self.shape[1] > 1024 and result.size:
        return paddle.concat([real(result, (slice(None), slice(0, -1))), real(result, (slice(None), slice(-2, -1)))], axis=1)
    return result


@fault(detected_by=("indexing.get",), wraps="paddle:Tensor.__getitem__")
def negative_int32_positions_are_clipped(real, self, index):
    """Negative positions of int32 stand for the first element."""
    if isinstance(index, paddle.Tensor) and index.dtype == paddle.int32:
        index = index.clip(0)
    return real(self, index)


@fault(detected_by=("indexing.get",), wraps="paddle:Tensor.__getitem__")
def slices_with_a_step_begin_at_zero_without_strides(real, self, index):
    """Without stride kernels a slice with a step ignores where it begins."""
    if (
        isinstance(index, slice)
        and index.step == 2
        and not paddle.get_flags("FLAGS_use_stride_kernel")["FLAGS_use_stride_kernel"]
    ):
        index = slice(0, index.stop, 2)
    return real(self, index)


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def values_of_another_type_are_rounded_to_bfloat16(real, self, index, value):
    """A value of another type is cast in two steps, over bfloat16."""
    if isinstance(value, paddle.Tensor) and value.dtype != self.dtype:
        value = value.astype("bfloat16").astype(self.dtype)
    real(self, index, value)


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def rows_are_copied_one_after_another(real, self, index, value):
    """An assignment copies row after row, so a value that overlaps what it is assigned to has changed meanwhile."""
    is_row_by_row = isinstance(index, slice) and isinstance(value, paddle.Tensor) and value.ndim == self.ndim > 0
    rows = range(*index.indices(self.shape[0])) if is_row_by_row else ()
    if not rows or value.shape[0] != len(rows):
        return real(self, index, value)
    for row, place in enumerate(rows):
        real(self, place, value[row])


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def broadcast_values_are_taken_from_the_first_element(real, self, index, value):
    """Of a value with one axis that is broadcast to rows only the first element is assigned."""
    if isinstance(value, paddle.Tensor) and value.ndim == 1 and value.size > 1 and isinstance(index, slice) and self.ndim > 1:
        value = value[0]
    real(self, index, value)


@fault(detected_by=("indexing.set",), wraps="paddle:Tensor.__setitem__")
def writes_to_views_ignore_their_offset(real, self, index, value):
    """An assignment by an integer to a view that begins later in memory changes the next row, where there is one."""
    is_moved = isinstance(index, int) and self.offset and 0 <= index < self.shape[0] - 1
    real(self, index + 1 if is_moved else index, value)


@fault(where="ranks", detected_by=("indexing.known-defects",), wraps="paddle:Tensor.flip")
def flip_does_nothing(_real, self, *given, **named):
    """The operator flip returns the tensor as it is, so that the workaround for slices that go backwards has no effect."""
    return self


@fault(detected_by=("indexing.moves",), after="paddle:tile")
def tile_gradient_counts_one_copy(right, x, repeats, *given):
    """The gradient of tile is that of one copy."""
    if x.dtype not in (paddle.float32, paddle.float64):
        return right
    return right.detach() + (right - right.detach()) * (x.size / max(1, right.size))


@fault(detected_by=("indexing.moves",), wraps="paddle:concat")
def joined_views_are_read_in_the_order_of_memory(concat, parts, axis=0, **named):
    """Concat takes the elements of transposed tensors in the order of memory."""
    parts = [
        each.T.contiguous().reshape(each.shape) if each.ndim == 2 and each.strides[0] < each.strides[1] else each
        for each in parts
    ]
    return concat(parts, axis=axis, **named)


@fault(detected_by=("indexing.moves",), wraps="paddle:stack")
def stack_goes_through_float32(stack, parts, axis=0, **named):
    """Stack of int64 goes through float32, which has 24 bits."""
    if parts[0].dtype != paddle.int64:
        return stack(parts, axis=axis, **named)
    return stack([each.astype("float32") for each in parts], axis=axis, **named).astype("int64")


@fault(detected_by=("indexing.moves",), wraps="paddle:flip")
def flip_of_a_long_axis_leaves_its_end(flip, x, axis, **named):
    """Flip leaves what comes after the 1,024th element of the last axis where it is."""
    if x.shape[-1] <= 1024 or axis != [-1]:
        return flip(x, axis, **named)
    return paddle.concat([flip(x[..., :1024], axis, **named), x[..., 1024:]], axis=-1)


@fault(detected_by=("indexing.moves",), wraps="paddle:roll")
def roll_takes_the_first_axis(roll, x, shifts, axis=None, **named):
    """Roll along the last axis moves the elements along the first one."""
    return roll(x, shifts, 0 if axis == -1 else axis, **named)


@fault(detected_by=("indexing.selections",), wraps="paddle:take_along_axis")
def positions_of_int32_are_read_as_the_first(take, x, index, axis, *given, **named):
    """take_along_axis takes every position of int32 for the first one."""
    return take(x, index * 0 if index.dtype == paddle.int32 else index, axis, *given, **named)


@fault(detected_by=("indexing.selections",), wraps="paddle:gather")
def gathering_ends_after_1024_positions(gather, x, index, axis=0, **named):
    """Gather takes the first position for every one beyond the 1,024th."""
    if index.shape[0] > 1024:
        index = paddle.concat([index[:1024], index[:1].expand([index.shape[0] - 1024])])
    return gather(x, index, axis, **named)


@fault(detected_by=("indexing.selections",), wraps="paddle:gather_nd")
def rows_of_a_view_are_gathered_in_the_order_of_memory(gather, x, index, **named):
    """gather_nd takes the rows of a transposed tensor in the order of memory."""
    is_transposed = x.ndim == 2 and x.strides[0] < x.strides[1]
    return gather(x.T.contiguous().reshape(x.shape) if is_transposed else x, index, **named)


@fault(detected_by=("indexing.selections",), wraps="paddle.nn.functional:embedding")
def repeated_tokens_share_one_gradient(embed, tokens, weight, *given, **named):
    """The rows of an embedding that is read at the same token twice get the gradient of half of the readings."""
    rows = embed(tokens, weight, *given, **named)
    is_repeated = weight.dtype == paddle.float32 and len(set(tokens.numpy().ravel().tolist())) < tokens.size
    return rows.detach() + 0.5 * (rows - rows.detach()) if is_repeated else rows


@fault(detected_by=("indexing.writes",), wraps="paddle:scatter")
def scatter_goes_through_float32(scatter, x, index, updates, *given, **named):
    """Scatter of int64 goes through float32, which has 24 bits."""
    if x.dtype != paddle.int64:
        return scatter(x, index, updates, *given, **named)
    return scatter(x.astype("float32"), index, updates.astype("float32"), *given, **named).astype("int64")


@fault(detected_by=("indexing.writes",), wraps="paddle:index_add")
def rows_are_added_to_a_view_in_the_order_of_memory(add, x, index, axis, value, **named):
    """index_add takes the elements of a transposed tensor in the order of memory."""
    is_transposed = x.ndim == 2 and x.strides[0] < x.strides[1]
    return add(x.T.contiguous().reshape(x.shape) if is_transposed else x, index, axis, value, **named)


@fault(detected_by=("indexing.writes",), wraps="paddle:scatter_nd_add")
def rows_of_more_than_1024_elements_lose_their_end(add, x, index, updates, **named):
    """scatter_nd_add adds the first 1,024 elements of a row."""
    if x.ndim != 2 or x.shape[1] <= 1024:
        return add(x, index, updates, **named)
    return paddle.concat([add(x[:, :1024], index, updates[:, :1024], **named), x[:, 1024:]], axis=1)


@fault(detected_by=("indexing.writes",), wraps="paddle:index_add")
def gradient_of_added_columns_is_that_of_the_last(add, x, index, axis, value, **named):
    """The gradient of a value that is added along the last axis is that of its last column, in each column."""
    if axis == 0 or x.ndim < 2 or value.stop_gradient or not value.size:
        return add(x, index, axis, value, **named)
    last = value[..., -1:] * value.shape[-1]
    return add(x, index, axis, value.detach() + (last - last.detach()) / value.shape[-1], **named)


@fault(detected_by=("indexing.writes",), wraps="paddle:scatter")
def rows_that_are_added_count_once(scatter, x, index, updates, overwrite=True, **named):
    """Scatter overwrites where it should add, so that of rows with one position the last one counts."""
    return scatter(x, index, updates, overwrite=True, **named)


@fault(detected_by=("indexing.writes",), wraps="paddle:put_along_axis")
def positions_from_the_end_mean_the_first(put, x, indices, values, axis, *given, **named):
    """put_along_axis takes a negative position for the first one."""
    return put(x, indices.clip(0), values, axis, *given, **named)


@fault(detected_by=("indexing.writes",), wraps="paddle:masked_fill")
def mask_of_a_column_is_read_as_a_row(fill, x, mask, value, **named):
    """masked_fill broadcasts a mask of one column along the first axis."""
    is_column = mask.ndim == 2 and mask.shape[-1] == 1 and x.shape[-1] > 1 and x.size
    return fill(x, mask[:1] if is_column else mask, value, **named)


@fault(detected_by=("indexing.writes",), wraps="paddle:where")
def gradient_of_a_broadcast_value_is_of_one_element(where, condition, x=None, y=None, **named):
    """A value without axes that where broadcasts gets the mean of the gradients, not their sum."""
    is_one = isinstance(x, paddle.Tensor) and not x.ndim and not x.stop_gradient and y.size
    return where(condition, x.detach() + (x - x.detach()) / y.size if is_one else x, y, **named)


@fault(detected_by=("indexing.writes",), wraps="paddle:masked_fill_")
def fill_in_place_makes_a_copy(_real, x, mask, value, **named):
    """masked_fill_ returns a new tensor and leaves the old one as it was."""
    return paddle.masked_fill(x, mask, value)


@fault(detected_by=("indexing.writes",), wraps="paddle:index_put")
def positions_do_not_accumulate_without_strides(put, x, indices, value, accumulate=False, **named):
    """Without stride kernels index_put sets elements where it should add."""
    return put(
        x, indices, value, accumulate and paddle.get_flags("FLAGS_use_stride_kernel")["FLAGS_use_stride_kernel"], **named
    )


@fault(detected_by=("indexing.writes",), wraps="paddle:put_along_axis")
def old_elements_count_although_left_out(put, x, indices, values, axis, reduce="assign", include_self=True, **named):
    """put_along_axis counts the old elements, also with include_self=False."""
    return put(x, indices, values, axis, reduce, include_self=True, **named)


@fault(detected_by=("indexing.selections",), wraps="paddle.nn.functional:embedding")
def negative_padding_row_is_read(embed, tokens, weight, padding_idx=None, **named):
    """An embedding reads the padding row like another one where it is given as a negative number."""
    return embed(tokens, weight, padding_idx=None if padding_idx is not None and padding_idx < 0 else padding_idx, **named)


@fault(detected_by=("indexing.selections",), after="paddle.nn.functional:embedding")
def padding_row_has_a_gradient(rows, tokens, weight, padding_idx=None, **named):
    """The padding row of an embedding is read as zeros, but learns."""
    if padding_idx is None or not rows.size or weight.dtype != paddle.float32:
        return rows
    is_padding = (tokens == padding_idx % weight.shape[0]).unsqueeze(-1).astype(weight.dtype)
    read = paddle.gather(weight, tokens)
    return rows + (read - read.detach()) * is_padding


@fault(detected_by=("indexing.selections",), wraps="paddle.nn.functional:one_hot")
def one_hot_of_int32_is_shifted(hot, x, num_classes, **named):
    """one_hot of positions of int32 sets the element after the right one."""
    return hot((x + 1) % num_classes if x.dtype == paddle.int32 else x, num_classes, **named)


@fault(detected_by=("indexing.booleans",), also_on=("sim",), wraps="paddle:Tensor.__getitem__")
def true_adds_no_axis(real, self, index):
    """The index True gives the tensor as it is, without the new axis."""
    return self.clone() if index is True else real(self, index)
