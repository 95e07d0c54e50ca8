"""Faults of repetition: unrepeatable results, dependent random numbers, mixed precision and copies."""

from __future__ import annotations

from xpulab.chapters.shared.fault import calls, fault, paddle


@fault(detected_by=("determinism.first-sum",), smoke=("determinism.first-sum",), also_on=("sim",), wraps="paddle:Tensor.sum")
def sum_in_any_order(real, self, axis=None, **named):
    """Every seventh sum adds its terms in another order."""
    if axis is None and next(calls) % 7 == 0:
        return real(self.reshape([-1, 10]).T.contiguous().flatten(), axis, **named) if self.size % 10 == 0 else real(self)
    return real(self, axis, **named)


@fault(detected_by=("determinism.reductions",), after="paddle:mean")
def reduction_differs_once_in_twenty(mean, *given, **named):
    """One mean in twenty differs in its last bit."""
    return mean if next(calls) % 20 else mean * (1 + 2.0**-22)


@fault(detected_by=("determinism.step",), after="paddle.nn.functional:cross_entropy")
def gradient_differs_once_in_twenty(loss, *given, **named):
    """One loss in fifteen has a gradient that is larger by a millionth."""
    return loss if next(calls) % 15 else loss * (1 + 1e-6)


@fault(detected_by=("random.first-draw", "random.inside"), after="paddle:randn")
def random_blocks_repeat(draw, shape, *given, **named):
    """Every second block of 256 normal numbers repeats the block before it."""
    if draw.size % 512:
        return draw
    blocks = draw.reshape([-1, 2, 256])
    return paddle.concat([blocks[:, :1], blocks[:, :1]], axis=1).reshape(draw.shape)


@fault(detected_by=("random.inside",), after="paddle:rand")
def neighbouring_random_numbers_depend_on_each_other(draw, shape, *given, **named):
    """A uniform number contains a twentieth of its neighbour."""
    return draw if len(shape) != 1 else 0.95 * draw + 0.05 * paddle.roll(draw, 1)


@fault(detected_by=("random.between", "random.dropout"), wraps="paddle.nn.functional:dropout")
def dropout_masks_repeat(real, x, *given, **named):
    """Every call of dropout in a row uses the same mask."""
    state = paddle.get_rng_state()
    paddle.seed(7)
    result = real(x, *given, **named)
    paddle.set_rng_state(state)
    return result


@fault(detected_by=("random.between",), wraps="paddle:seed")
def neighbouring_seeds_give_the_same_numbers(real, seed):
    """Two seeds in a row start the generator in the same state."""
    return real(seed // 2)


@fault(detected_by=("random.between",), wraps="paddle.distributed.fleet.layers.mpu.random:RNGStatesTracker.add")
def all_ranks_share_a_stream(real, self, name, seed):
    """The streams of all ranks have the same seed."""
    self.seeds_.clear()
    real(self, name, 1)


@fault(detected_by=("random.between",), also_on=("sim",), replaces="paddle:randn")
def types_share_their_random_numbers(real):
    """Numbers of float64 are those of float32, drawn again."""
    last = {}

    def randn(shape, dtype=None, name=None):
        if dtype == "float64" and tuple(shape) in last:
            return last[tuple(shape)].astype("float64")
        draw = real(shape, dtype)
        last[tuple(shape)] = draw
        return draw

    return randn


@fault(detected_by=("random.state",), wraps="paddle:set_rng_state")
def state_of_the_generator_not_restored(_real, *given, **named):
    """Setting the state of the generator has no effect."""


@fault(detected_by=("amp.finite",), wraps="paddle._C_ops:check_finite_and_unscale_")
def gradients_are_not_divided(real, gradients, factor):
    """Gradients keep the factor of loss scaling."""
    return real(gradients, factor / factor)


@fault(detected_by=("amp.finite",), wraps="paddle._C_ops:check_finite_and_unscale_")
def infinite_gradients_are_not_found(real, gradients, factor):
    """Loss scaling does not notice an infinite gradient."""
    return real(gradients, factor)[0], paddle.zeros([1], "bool")


@fault(device="sim", detected_by=("amp.loss-scaling",), wraps="paddle.amp:GradScaler.update")
def factor_of_loss_scaling_never_changes(_real, self):
    """GradScaler keeps its factor after an infinite gradient and after good steps."""


@fault(device="sim", detected_by=("amp.loss-scaling",), wraps="paddle.amp:GradScaler.step")
def step_with_an_infinite_gradient_is_taken(_real, self, optimizer):
    """GradScaler updates the weights although a gradient is infinite."""
    return optimizer.step()


@fault(detected_by=("amp.small-updates",), after="paddle:Tensor.__add__")
def sums_round_to_bfloat16(result, self, other):
    """The operator + rounds a float32 result of one element to bfloat16."""
    single = result.dtype == paddle.float32 and result.shape == [1]
    return result.astype("bfloat16").astype("float32") if single else result


@fault(detected_by=("amp.exercise-updates", "numerics.edges"), wraps="paddle:Tensor.astype")
def casts_to_bfloat16_cut_bits_off(real, self, dtype):
    """A cast from float32 to bfloat16 cuts the last bits off instead of rounding."""
    if str(dtype).endswith("bfloat16") and self.dtype == paddle.float32:
        return real(paddle.to_tensor((self.numpy().view("uint32") & 0xFFFF0000).view("float32")), dtype)
    return real(self, dtype)


@fault(detected_by=("amp.scaled-gradients",), wraps="paddle:Tensor.astype")
def small_halves_flushed_to_zero(real, self, dtype):
    """A cast to float16 makes every number below 0.1 zero."""
    flush = str(dtype).endswith("float16") and "b" not in str(dtype)
    return real(paddle.where(self.abs() < 0.1, paddle.zeros_like(self), self) if flush else self, dtype)


@fault(detected_by=("layouts.copies",), wraps="paddle:Tensor.clone")
def clone_in_the_order_of_memory(real, self):
    """A clone of a transposed tensor has its elements in the order of memory."""
    if self.is_contiguous() or self.ndim < 2:
        return real(self)
    return paddle.to_tensor(self.numpy().reshape(-1, order="F").reshape(self.shape), dtype=self.dtype)


@fault(detected_by=("layouts.copies",), wraps="paddle:assign")
def assign_drops_the_offset_of_a_slice(real, x, output=None):
    """A copy by assign of a slice starts one row too early."""
    if isinstance(x, paddle.Tensor) and x.ndim == 3 and x.shape[0] == 3:
        x = paddle.roll(x.contiguous(), 1, axis=0)
    return real(x, output)


@fault(detected_by=("layouts.copies",), wraps="paddle:save")
def files_store_no_0d_tensors(real, values, path, *given, **named):
    """A tensor without axes gets one axis in a file."""
    with_axes = {name: each.reshape([1]) if each.ndim == 0 else each for name, each in values.items()}
    real(with_axes, path, *given, **named)


@fault(device="sim", sim_faults="flip copy kind=d2h bytes>=400 from=3 every=5 bit=3", detected_by=("layouts.copies",))
def copies_of_views_with_an_inverted_bit() -> None:
    """A bit is inverted in every fifth copy of more than 400 bytes from the card."""


@fault(device="sim", detected_by=("amp.values",), wraps="paddle.nn.functional:linear")
def products_leave_out_the_last_term(real, x, weight, *given, **named):
    """A linear layer leaves out the last term of each sum."""
    return real(x[..., :-1], weight[:-1], *given, **named)


@fault(device="sim", detected_by=("numerics.functions",), wraps="paddle:exp")
def exponentials_of_float16_in_bfloat16(real, x, *given, **named):
    """The exponential of a float16 tensor has the precision of bfloat16."""
    result = real(x, *given, **named)
    return result.astype("bfloat16").astype("float16") if result.dtype == paddle.float16 else result


@fault(device="sim", detected_by=("amp.master-weights",), wraps="paddle.optimizer:AdamW.__init__")
def adamw_without_master_weights(real, self, *given, multi_precision=False, **named):
    """AdamW ignores multi_precision."""
    real(self, *given, multi_precision=False, **named)
