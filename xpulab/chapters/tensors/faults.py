"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, fault, np, paddle, replace_in_cells


@fault(
    "indexing.smoke-view",
    "indexing.views",
    "indexing.in-place",
    "indexing.exercise-view",
    smoke=("indexing.smoke-view",),
    wraps="paddle:Tensor.__getitem__",
)
def slices_are_copies(real, self, index):
    """A slice of a tensor is a copy, although stride kernels are in use."""
    return real(self, index).clone()


@fault("indexing.two-modes", "indexing.views", wraps="paddle:set_flags")
def stride_flag_without_effect(real, flags):
    """Setting FLAGS_use_stride_kernel changes nothing."""
    return real({name: value for name, value in flags.items() if "stride" not in name})


@fault("indexing.rules", wraps="paddle:Tensor.__getitem__")
def integers_count_as_positions(real, self, index):
    """An integer beside a tensor of positions counts as one, as in numpy."""
    tensors = isinstance(index, tuple) and any(isinstance(each, paddle.Tensor) and each.ndim for each in index)
    if (tensors and not self.is_contiguous()) or not tensors:
        return real(self, index)
    array = self.numpy()[tuple(each.numpy() if isinstance(each, paddle.Tensor) else each for each in index)]
    return paddle.to_tensor(array)


@fault("indexing.refused", wraps="paddle:Tensor.__getitem__")
def position_out_of_range_is_clipped(real, self, index):
    """An integer out of range is taken for the last position."""
    return real(self, min(index, self.shape[0] - 1) if isinstance(index, int) else index)


@fault("indexing.in-range", breaks=CELLS)
def check_of_positions_forgets_the_end() -> None:
    """The lesson's function that checks positions accepts those beyond the end."""
    replace_in_cells("if lowest < -size or highest >= size:", "if lowest < -size:")


@fault("index-gradients.repeated", "indexing.get", "index-gradients.exercise-rows", replaces="paddle:Tensor.__getitem__")
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


@fault("indexing.set", "index-gradients.by-index", wraps="paddle:Tensor.__setitem__")
def overwritten_elements_keep_their_gradient(real, self, index, value):
    """Elements of float32 that an assignment by integers and slices overwrites keep the gradient of the old value."""
    items = index if isinstance(index, tuple) else (index,)
    is_basic = all(isinstance(item, (int, slice)) for item in items) and self.dtype == paddle.float32
    before = self.clone() if is_basic and not self.stop_gradient else None
    real(self, index, value)
    if before is not None:
        self.add_(before - before.detach())


@fault("index-gradients.too-late", wraps="paddle:Tensor.backward", lanes=("sim",))
def overwriting_is_not_noticed(real, self, *args, **kwargs):
    """Overwriting a value that backward needs raises no error."""
    try:
        real(self, *args, **kwargs)
    except RuntimeError as error:
        if "version" not in str(error):
            raise


@fault("large-tensors.elements", wraps=("paddle:Tensor.__getitem__", "paddle:Tensor.__setitem__"))
def positions_have_31_bits(real, self, index, *value):
    """Positions of elements are computed in 31 bits."""
    return real(self, index % 2**31 if isinstance(index, int) and index > 0 else index, *value)


@fault("indexing.out-of-range", wraps="paddle:Tensor.__getitem__")
def positions_out_of_range_are_clipped_without_strides(real, self, index):
    """Without stride kernels tensors of positions beyond the end stand for the last element."""
    if isinstance(index, tuple) and not paddle.get_flags("FLAGS_use_stride_kernel")["FLAGS_use_stride_kernel"]:
        pairs = zip(index, self.shape, strict=False)
        is_tensor = [isinstance(each, paddle.Tensor) and each.dtype == paddle.int64 for each in index]
        if all(is_tensor):
            index = tuple(each.clip(-size, size - 1) for each, size in pairs)
    return real(self, index)


@fault("indexing.known-defects", where="ranks", wraps="paddle:Tensor.flip")
def flip_does_nothing(_real, self, *given, **named):
    """The operator flip returns the tensor as it is, so that the workaround for slices that go backwards has no effect."""
    return self


@fault("indexing.moves", after="paddle:tile")
def tile_gradient_counts_one_copy(right, x, repeats, *given):
    """The gradient of tile is that of one copy."""
    if x.dtype not in (paddle.float32, paddle.float64):
        return right
    return right.detach() + (right - right.detach()) * (x.size / max(1, right.size))


@fault("indexing.selections", after="paddle:gather")
def gather_gradient_in_other_rows(right, x, index, axis=0):
    """The gradient of gather goes to other rows, as in Paddle 3.0.0."""
    return right.detach() + (right - right.detach()).flip(0)


@fault("indexing.selections", wraps="paddle:index_select")
def index_select_reads_positions_side_by_side(select, x, index, *given, **named):
    """Index_select takes positions that lie apart in their memory as if they lay side by side."""
    if not index.is_contiguous() and index.strides[0] > 1:
        index = paddle.repeat_interleave(index, index.strides[0])[: index.shape[0]]
    return select(x, index, *given, **named)


@fault("indexing.writes", wraps="paddle:scatter")
def scatter_goes_through_float32(scatter, x, index, updates, *given, **named):
    """Scatter of int64 goes through float32, which has 24 bits."""
    if x.dtype != paddle.int64:
        return scatter(x, index, updates, *given, **named)
    return scatter(x.astype("float32"), index, updates.astype("float32"), *given, **named).astype("int64")


@fault("indexing.get", wraps="paddle:Tensor.__getitem__", lanes=("sim",))
def true_adds_no_axis(real, self, index):
    """The index True gives the tensor as it is, without the new axis."""
    return self.clone() if index is True else real(self, index)


@fault("indexing.selections", wraps="paddle:_C_ops.embedding")
def embedding_gradient_counts_once(real, ids, *others):
    """The gradient of an embedding counts a token once, however often it occurs."""
    result, flat = real(ids, *others), ids.numpy().reshape(-1)
    last = np.zeros(flat.size, "float32")
    last[list({int(token): place for place, token in enumerate(flat)}.values())] = 1
    factor = paddle.to_tensor(last.reshape([*ids.shape, 1])).astype(result.dtype)
    return result.detach() + (result - result.detach()) * factor


@fault("indexing.writes", wraps="paddle:scatter")
def scatter_adds_to_what_is_there(scatter, x, index, updates, overwrite=True, **named):
    """scatter with overwrite=False adds the updates to what is there, which must count as 0."""
    return scatter(x, index, updates, **named) if overwrite else x.index_add(index, 0, updates)
