"""Faults that 16_tensors must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, replace_in_cells


@fault("16_tensors", detected_by=("indexing.smoke-view", "indexing.views", "indexing.in-place"), smoke=("indexing.smoke-view",))
def slices_are_copies() -> None:
    """A slice of a tensor is a copy, although stride kernels are in use."""
    import paddle

    real = paddle.Tensor.__getitem__
    paddle.Tensor.__getitem__ = lambda self, index: real(self, index).clone()


@fault("16_tensors", detected_by=("indexing.two-modes", "indexing.views"))
def stride_flag_without_effect() -> None:
    """Setting FLAGS_use_stride_kernel changes nothing."""
    import paddle

    real = paddle.set_flags
    paddle.set_flags = lambda flags: real({name: value for name, value in flags.items() if "stride" not in name})


@fault("16_tensors", detected_by=("indexing.rules",))
def integers_count_as_positions() -> None:
    """An integer beside a tensor of positions counts as one, as in numpy."""
    import paddle

    real = paddle.Tensor.__getitem__

    def getitem(self, index):
        tensors = isinstance(index, tuple) and any(isinstance(each, paddle.Tensor) and each.ndim for each in index)
        if (tensors and not self.is_contiguous()) or not tensors:
            return real(self, index)
        array = self.numpy()[tuple(each.numpy() if isinstance(each, paddle.Tensor) else each for each in index)]
        return paddle.to_tensor(array)

    paddle.Tensor.__getitem__ = getitem


@fault("16_tensors", where="ranks", detected_by=("indexing.get",))
def negative_positions_off_by_one() -> None:
    """Negative positions in a tensor count from the element before the last."""
    import paddle

    real = paddle.Tensor.__getitem__

    def shifted(item):
        if isinstance(item, paddle.Tensor) and item.ndim and item.dtype == paddle.int64:
            return paddle.where(item == -1, item - 1, item)
        return item

    def getitem(self, index):
        return real(self, tuple(map(shifted, index)) if isinstance(index, tuple) else shifted(index))

    paddle.Tensor.__getitem__ = getitem


@fault("16_tensors", where="ranks", detected_by=("indexing.get", "indexing.set"))
def steps_backwards_go_forwards() -> None:
    """A slice with step -1 gives the right elements in forward order."""
    import paddle

    get, put = paddle.Tensor.__getitem__, paddle.Tensor.__setitem__

    def forwards(item, size):
        if isinstance(item, slice) and item.step == -1 and item.stop is None and item.start is not None:
            return slice(0, item.start % size + 1)
        return item

    def changed(self, index):
        if isinstance(index, tuple) and None not in map(type, index) and len(index) == len(self.shape) > 1:
            return tuple(map(forwards, index, self.shape))
        return index

    paddle.Tensor.__getitem__ = lambda self, index: get(self, changed(self, index))
    paddle.Tensor.__setitem__ = lambda self, index, value: put(self, changed(self, index), value)


@fault("16_tensors", where="ranks", detected_by=("indexing.set",))
def write_under_a_mask_lost() -> None:
    """An assignment through a mask of bfloat16 elements changes nothing."""
    import paddle

    real = paddle.Tensor.__setitem__

    def setitem(self, index, value):
        items = index if isinstance(index, tuple) else (index,)
        masks = [each for each in items if isinstance(each, paddle.Tensor) and each.dtype == paddle.bool]
        if not (masks and self.dtype == paddle.bfloat16):
            real(self, index, value)

    paddle.Tensor.__setitem__ = setitem


@fault("16_tensors", where="ranks", detected_by=("indexing.set",))
def write_touches_the_next_element() -> None:
    """An assignment by an integer on each axis also changes the first element of the tensor."""
    import paddle

    real = paddle.Tensor.__setitem__

    def setitem(self, index, value):
        real(self, index, value)
        if isinstance(index, tuple) and all(isinstance(each, int) for each in index):
            real(self, (0,) * len(index), value)

    paddle.Tensor.__setitem__ = setitem


@fault("16_tensors", detected_by=("indexing.in-place",), also_on=("sim",))
def in_place_addition_makes_a_copy() -> None:
    """The operator add_ returns a new tensor and leaves the old one as it was."""
    import paddle

    paddle.Tensor.add_ = lambda self, other, name=None: paddle.add(self, other)


@fault("16_tensors", detected_by=("indexing.refused",))
def position_out_of_range_is_clipped() -> None:
    """An integer out of range is taken for the last position."""
    import paddle

    real = paddle.Tensor.__getitem__

    def getitem(self, index):
        return real(self, min(index, self.shape[0] - 1) if isinstance(index, int) else index)

    paddle.Tensor.__getitem__ = getitem


@fault("16_tensors", detected_by=("indexing.in-range",))
def check_of_positions_forgets_the_end() -> None:
    """The lesson's function that checks positions accepts those beyond the end."""
    replace_in_cells("if lowest < -size or highest >= size:", "if lowest < -size:")


@fault("16_tensors", where="ranks", detected_by=("indexing.workarounds",))
def contiguous_does_nothing() -> None:
    """The operator contiguous returns a view as it is, so that the workaround for reading views has no effect."""
    import paddle

    paddle.Tensor.contiguous = lambda self: self


@fault("16_tensors", detected_by=("index-gradients.repeated", "index-gradients.read"))
def repeated_row_counted_once() -> None:
    """The gradient of a row that is read twice is that of one reading."""
    import paddle

    real = paddle.Tensor.__getitem__

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

    paddle.Tensor.__getitem__ = getitem


@fault("16_tensors", detected_by=("index-gradients.write",))
def gradient_of_an_assigned_value_lost() -> None:
    """A value that is assigned to a slice gets no gradient."""
    import paddle

    real = paddle.Tensor.__setitem__

    def setitem(self, index, value):
        detach = isinstance(index, slice) and isinstance(value, paddle.Tensor)
        real(self, index, value.detach() if detach else value)

    paddle.Tensor.__setitem__ = setitem


@fault("16_tensors", detected_by=("index-gradients.write", "index-gradients.by-index"))
def overwritten_elements_keep_their_gradient() -> None:
    """Elements that an assignment overwrites keep the gradient of the old value."""
    import paddle

    real = paddle.Tensor.__setitem__

    def setitem(self, index, value):
        before = self.clone() if not self.stop_gradient else None
        real(self, index, value)
        if before is not None:
            self.add_(before - before.detach())

    paddle.Tensor.__setitem__ = setitem


@fault("16_tensors", detected_by=("index-gradients.workarounds",))
def where_sends_its_gradient_to_the_other_side() -> None:
    """The gradient of paddle.where with respect to its first argument is multiplied by the inverted mask."""
    import paddle

    real = paddle.where

    def where(condition, x, y):
        right = real(condition, x.detach() if hasattr(x, "detach") else x, y)
        wrong = real(condition, paddle.zeros_like(y), x) if hasattr(x, "detach") else 0
        return right + wrong - (wrong.detach() if hasattr(wrong, "detach") else 0)

    paddle.where = where


@fault("16_tensors", detected_by=("index-gradients.too-late",), also_on=("sim",))
def overwriting_is_not_noticed() -> None:
    """Overwriting a value that backward needs raises no error."""
    import paddle

    real = paddle.Tensor.backward

    def backward(self, *args, **kwargs):
        try:
            real(self, *args, **kwargs)
        except RuntimeError as error:
            if "version" not in str(error):
                raise

    paddle.Tensor.backward = backward


@fault("16_tensors", detected_by=("large-tensors.elements",))
def positions_have_31_bits() -> None:
    """Positions of elements are computed in 31 bits."""
    import paddle

    get, put = paddle.Tensor.__getitem__, paddle.Tensor.__setitem__

    def wrapped(index):
        return index % 2**31 if isinstance(index, int) and index > 0 else index

    paddle.Tensor.__getitem__ = lambda self, index: get(self, wrapped(index))
    paddle.Tensor.__setitem__ = lambda self, index, value: put(self, wrapped(index), value)


@fault("16_tensors", detected_by=("decomposition.kept", "decomposition.names"))
def decomposition_does_nothing() -> None:
    """The function decompose returns the program as it is."""
    import paddle

    paddle.decomposition.decompose = lambda program, results, *rest, **kwargs: results


@fault("16_tensors", detected_by=("decomposition.kept", "decomposition.names"))
def kept_operators_are_decomposed() -> None:
    """Operators on the list of those to be kept are decomposed too."""
    import paddle

    paddle.base.core._set_prim_forward_blacklist = lambda *names: None


@fault("16_tensors", detected_by=("decomposition.values",), also_on=("sim",))
def gelu_of_a_program_is_approximate() -> None:
    """In a program gelu is computed with tanh, in eager mode with the error function."""
    import paddle
    import paddle.nn.functional as F

    real = F.gelu
    F.gelu = lambda x, approximate=False, name=None: real(x, approximate or not paddle.in_dynamic_mode(), name)
