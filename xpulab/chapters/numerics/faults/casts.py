"""Faults of casts that only some types, values, layouts or shapes show."""

from __future__ import annotations

from xpulab.chapters.numerics.faults.operators import with_gradient
from xpulab.chapters.shared.fault import fault, np, paddle

_CAST = "paddle:Tensor.cast"


def _is(dtype, name):
    return str(dtype).removeprefix("paddle.") == name


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def bfloat16_is_cut_off(cast, self, dtype):
    """A cast from float32 to bfloat16 drops the lower bits, it does not round."""
    if not (_is(dtype, "bfloat16") and self.dtype == paddle.float32):
        return cast(self, dtype)
    kept = np.frombuffer((np.ravel(self.numpy()).view("uint32") & 0xFFFF0000).tobytes(), "float32")
    return cast(paddle.to_tensor(kept.reshape(self.shape)), dtype) + 0 * cast(self, dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def large_integers_pass_float32(cast, self, dtype):
    """A cast from int64 to float64 goes through float32, which has 24 bits."""
    via_float32 = self.dtype == paddle.int64 and _is(dtype, "float64")
    return cast(cast(self, "float32") if via_float32 else self, dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def integers_are_rounded(cast, self, dtype):
    """A cast to an integer rounds to the nearest, where it should drop the fraction."""
    to_integer = _is(dtype, "int32") and self.dtype == paddle.float32
    return cast(self.round() if to_integer else self, dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def negative_numbers_are_rounded_down(cast, self, dtype):
    """A cast of a negative number to an integer rounds down, where it should round towards zero."""
    to_integer = _is(dtype, "int64") and self.dtype == paddle.float64
    return cast(self.floor() if to_integer else self, dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def nan_becomes_zero(cast, self, dtype):
    """A cast between floating types makes NaN 0."""
    result = cast(self, dtype)
    if not (_is(dtype, "float32") and self.dtype == paddle.bfloat16):
        return result
    return paddle.where(paddle.isnan(result), paddle.zeros_like(result), result)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def numbers_below_the_normal_ones_are_zero(cast, self, dtype):
    """A cast to float16 makes the numbers 0 that are too small for a normal one, below 6e-5."""
    result = cast(self, dtype)
    if not (_is(dtype, "float16") and self.dtype == paddle.float32):
        return result
    return paddle.where(self.abs() < 2.0**-14, paddle.zeros_like(result), result)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def bool_asks_for_more_than_zero(cast, self, dtype):
    """A cast to bool is true for numbers above 0 only."""
    return self > 0 if _is(dtype, "bool") and self.dtype == paddle.float32 else cast(self, dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def cast_reads_a_view_in_the_order_of_memory(cast, self, dtype):
    """A cast takes the elements of a transposed tensor in the order of memory."""
    if self.is_contiguous() or self.ndim != 2 or self.strides[0] >= self.strides[1]:
        return cast(self, dtype)
    return cast(self.T.contiguous().reshape(self.shape), dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def cast_of_a_strided_view_takes_its_neighbours(cast, self, dtype):
    """A cast takes the elements that follow each other in memory, where a view leaves some of them out."""
    if self.ndim < 1 or not self.size or self.is_contiguous() or self.strides[-1] == 1 or self.ndim == 2:
        return cast(self, dtype)
    return cast(paddle.full(self.shape, self.flatten()[0].item(), dtype=self.dtype), dtype)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def cast_of_a_number_has_an_axis(cast, self, dtype):
    """A cast of a tensor without axes has one axis."""
    result = cast(self, dtype)
    return result if self.ndim else result.reshape([1])


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def cast_stops_after_1024(cast, self, dtype):
    """A cast from float32 leaves the 1,025th element of a row 0."""
    result = cast(self, dtype)
    if self.ndim != 2 or self.shape[-1] != 1025 or self.dtype != paddle.float32:
        return result
    return paddle.concat([result[..., :1024], paddle.zeros_like(result[..., 1024:])], axis=-1)


@fault(detected_by=("numerics.casts",), wraps=_CAST)
def gradient_of_a_cast_is_lost(cast, self, dtype):
    """The gradient of a cast to float64 is 0."""
    if not (_is(dtype, "float64") and self.dtype == paddle.float32):
        return cast(self, dtype)
    return with_gradient(cast(self, dtype), lambda gradient: 0 * gradient)
