"""Faults that 15_numerics must detect: unrepeatable results, dependent random numbers, mixed precision and copies."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("15_numerics", detected_by=("determinism.first-sum",), smoke=("determinism.first-sum",), also_on=("sim",))
def sum_in_any_order() -> None:
    """Every seventh sum adds its terms in another order."""
    import itertools

    import paddle

    real, calls = paddle.Tensor.sum, itertools.count(1)

    def total(self, axis=None, **named):
        if axis is None and next(calls) % 7 == 0:
            return real(self.reshape([-1, 10]).T.contiguous().flatten(), axis, **named) if self.size % 10 == 0 else real(self)
        return real(self, axis, **named)

    paddle.Tensor.sum = total


@fault("15_numerics", detected_by=("determinism.reductions",))
def reduction_differs_once_in_twenty() -> None:
    """One mean in twenty differs in its last bit."""
    import itertools

    import paddle

    real, calls = paddle.mean, itertools.count(1)

    def mean(x, axis=None, **named):
        result = real(x, axis=axis, **named)
        return result * (1 + 2.0**-22) if next(calls) % 20 == 0 else result

    paddle.mean = mean


@fault("15_numerics", detected_by=("determinism.step",))
def gradient_differs_once_in_twenty() -> None:
    """One loss in fifteen has a gradient that is larger by a millionth."""
    import itertools

    import paddle

    real, calls = paddle.nn.functional.cross_entropy, itertools.count(1)

    def cross_entropy(*given, **named):
        loss = real(*given, **named)
        return loss * (1 + 1e-6) if next(calls) % 15 == 0 else loss

    paddle.nn.functional.cross_entropy = cross_entropy


@fault("15_numerics", detected_by=("random.first-draw", "random.inside"))
def random_blocks_repeat() -> None:
    """Every second block of 256 normal numbers repeats the block before it."""
    import paddle

    real = paddle.randn

    def randn(shape, *given, **named):
        draw = real(shape, *given, **named)
        if draw.size % 512:
            return draw
        blocks = draw.reshape([-1, 2, 256])
        return paddle.concat([blocks[:, :1], blocks[:, :1]], axis=1).reshape(draw.shape)

    paddle.randn = randn


@fault("15_numerics", detected_by=("random.inside",))
def neighbouring_random_numbers_depend_on_each_other() -> None:
    """A uniform number contains a twentieth of its neighbour."""
    import paddle

    real = paddle.rand

    def rand(shape, *given, **named):
        draw = real(shape, *given, **named)
        return draw if len(shape) != 1 else 0.95 * draw + 0.05 * paddle.roll(draw, 1)

    paddle.rand = rand


@fault("15_numerics", detected_by=("random.between",))
def dropout_masks_repeat() -> None:
    """Every call of dropout in a row uses the same mask."""
    import paddle

    real = paddle.nn.functional.dropout

    def dropout(x, *given, **named):
        state = paddle.get_rng_state()
        paddle.seed(7)
        result = real(x, *given, **named)
        paddle.set_rng_state(state)
        return result

    paddle.nn.functional.dropout = dropout


@fault("15_numerics", detected_by=("random.between",))
def neighbouring_seeds_give_the_same_numbers() -> None:
    """Two seeds in a row start the generator in the same state."""
    import paddle

    real = paddle.seed
    paddle.seed = lambda seed: real(seed // 2)


@fault("15_numerics", detected_by=("random.between",))
def all_ranks_share_a_stream() -> None:
    """The streams of all ranks have the same seed."""
    from paddle.distributed.fleet.layers.mpu.random import RNGStatesTracker

    real = RNGStatesTracker.add

    def add(self, name, seed):
        self.seeds_.clear()
        real(self, name, 1)

    RNGStatesTracker.add = add


@fault("15_numerics", detected_by=("random.between",), also_on=("sim",))
def types_share_their_random_numbers() -> None:
    """Numbers of float64 are those of float32, drawn again."""
    import paddle

    real = paddle.randn
    last = {}

    def randn(shape, dtype=None, name=None):
        if dtype == "float64" and tuple(shape) in last:
            return last[tuple(shape)].astype("float64")
        draw = real(shape, dtype)
        last[tuple(shape)] = draw
        return draw

    paddle.randn = randn


@fault("15_numerics", detected_by=("random.state",))
def state_of_the_generator_not_restored() -> None:
    """Setting the state of the generator has no effect."""
    import paddle

    paddle.set_rng_state = lambda *given, **named: None


@fault("15_numerics", detected_by=("amp.finite",))
def gradients_are_not_divided() -> None:
    """Gradients keep the factor of loss scaling."""
    from paddle import _C_ops

    real = _C_ops.check_finite_and_unscale_
    _C_ops.check_finite_and_unscale_ = lambda gradients, factor: real(gradients, factor / factor)


@fault("15_numerics", detected_by=("amp.finite",))
def infinite_gradients_are_not_found() -> None:
    """Loss scaling does not notice an infinite gradient."""
    import paddle
    from paddle import _C_ops

    real = _C_ops.check_finite_and_unscale_

    def unscale(gradients, factor):
        return real(gradients, factor)[0], paddle.zeros([1], "bool")

    _C_ops.check_finite_and_unscale_ = unscale


@fault("15_numerics", device="sim", detected_by=("amp.loss-scaling",))
def factor_of_loss_scaling_never_changes() -> None:
    """GradScaler keeps its factor after an infinite gradient and after good steps."""
    import paddle

    paddle.amp.GradScaler.update = lambda self: None


@fault("15_numerics", device="sim", detected_by=("amp.loss-scaling",))
def step_with_an_infinite_gradient_is_taken() -> None:
    """GradScaler updates the weights although a gradient is infinite."""
    import paddle

    paddle.amp.GradScaler.step = lambda self, optimizer: optimizer.step()


@fault("15_numerics", detected_by=("amp.small-updates",))
def sums_round_to_bfloat16() -> None:
    """The operator + rounds a float32 result of one element to bfloat16."""
    import paddle

    real = paddle.Tensor.__add__

    def add(self, other):
        result = real(self, other)
        single = result.dtype == paddle.float32 and result.shape == [1]
        return result.astype("bfloat16").astype("float32") if single else result

    paddle.Tensor.__add__ = add


@fault("15_numerics", detected_by=("amp.scaled-gradients",))
def small_halves_flushed_to_zero() -> None:
    """A cast to float16 makes every number below 0.1 zero."""
    import paddle

    real = paddle.Tensor.astype

    def astype(self, dtype):
        flush = str(dtype).endswith("float16") and "b" not in str(dtype)
        return real(paddle.where(self.abs() < 0.1, paddle.zeros_like(self), self) if flush else self, dtype)

    paddle.Tensor.astype = astype


@fault("15_numerics", detected_by=("layouts.copies",))
def clone_in_the_order_of_memory() -> None:
    """A clone of a transposed tensor has its elements in the order of memory."""
    import paddle

    real = paddle.Tensor.clone

    def clone(self):
        if self.is_contiguous() or self.ndim < 2:
            return real(self)
        return paddle.to_tensor(self.numpy().reshape(-1, order="F").reshape(self.shape), dtype=self.dtype)

    paddle.Tensor.clone = clone


@fault("15_numerics", detected_by=("layouts.copies",))
def assign_drops_the_offset_of_a_slice() -> None:
    """A copy by assign of a slice starts one row too early."""
    import paddle

    real = paddle.assign

    def assign(x, output=None):
        if isinstance(x, paddle.Tensor) and x.ndim == 3 and x.shape[0] == 3:
            x = paddle.roll(x.contiguous(), 1, axis=0)
        return real(x, output)

    paddle.assign = assign


@fault("15_numerics", detected_by=("layouts.copies",))
def files_store_no_0d_tensors() -> None:
    """A tensor without axes gets one axis in a file."""
    import paddle

    real = paddle.save

    def save(values, path, *given, **named):
        with_axes = {name: each.reshape([1]) if each.ndim == 0 else each for name, each in values.items()}
        real(with_axes, path, *given, **named)

    paddle.save = save


@fault(
    "15_numerics",
    device="sim",
    sim_faults="flip copy kind=d2h bytes>=400 from=3 every=5 bit=3",
    detected_by=("layouts.copies",),
)
def copies_of_views_with_an_inverted_bit() -> None:
    """A bit is inverted in every fifth copy of more than 400 bytes from the card."""
