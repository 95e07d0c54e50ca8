"""Faults that 00_environment must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("00_environment", detected_by=("numerics.matmul", "numerics.gradients", "numerics.first-product"))
def matmul_in_bfloat16() -> None:
    """Matrix products are computed in bfloat16 where float32 was asked for."""
    import paddle

    product = paddle.Tensor.__matmul__

    def rounded(tensor):
        return tensor.astype("bfloat16").astype(tensor.dtype)

    paddle.Tensor.__matmul__ = lambda self, other: product(rounded(self), rounded(other))


@fault("00_environment", detected_by=("numerics.softmax",))
def softmax_in_bfloat16() -> None:
    """Softmax is computed in bfloat16 where float32 was asked for."""
    import paddle

    softmax = paddle.nn.functional.softmax
    paddle.nn.functional.softmax = lambda x, *given: softmax(x.astype("bfloat16"), *given).astype(x.dtype)


@fault("00_environment", detected_by=("numerics.layer-norm",))
def layer_norm_with_another_epsilon() -> None:
    """Layer norm ignores the epsilon that it is given."""
    import paddle

    norm = paddle.nn.functional.layer_norm
    paddle.nn.functional.layer_norm = lambda x, shape, epsilon=1e-5, **named: norm(x, shape, epsilon=1e-3, **named)


@fault("00_environment", detected_by=("numerics.reductions",))
def mean_divides_by_n_minus_one() -> None:
    """A mean divides by the number of its terms minus one."""
    import paddle

    mean = paddle.Tensor.mean

    def biased(self, axis=None, **named):
        count = self.shape[axis] if isinstance(axis, int) else self.size
        return mean(self, axis=axis, **named) * (count / max(1, count - 1))

    paddle.Tensor.mean = biased


@fault("00_environment", detected_by=("numerics.random",))
def bernoulli_with_inverted_probability() -> None:
    """Bernoulli_(p) is 1 with probability 1 - p, as in Paddle 3.0.0."""
    import paddle

    draw = paddle.Tensor.bernoulli_
    paddle.Tensor.bernoulli_ = lambda self, p=0.5, **named: draw(self, 1 - p, **named)


@fault("00_environment", detected_by=("numerics.random",))
def seed_ignored() -> None:
    """The seed is ignored."""
    import paddle

    paddle.seed = lambda seed: None


@fault("00_environment", detected_by=("numerics.edges",))
def maximum_drops_nan() -> None:
    """Maximum drops NaN, as in Paddle 3.0.0."""
    import paddle

    paddle.maximum = paddle.fmax


@fault("00_environment", detected_by=("numerics.gradients",))
def gather_gradient_in_other_rows() -> None:
    """The gradient of gather goes to other rows, as in Paddle 3.0.0."""
    import paddle

    gather = paddle.gather

    def with_reversed_gradient(x, index, axis=0):
        right = gather(x, index, axis)
        return right.detach() + (right - right.detach()).flip(0)

    paddle.gather = with_reversed_gradient


@fault("00_environment", detected_by=("numerics.functions",))
def exp_with_a_relative_error() -> None:
    """Exp has a relative error of 1e-4."""
    import paddle

    exp = paddle.exp
    paddle.exp = lambda x: exp(x) * (1 + 1e-4)


@fault("00_environment", detected_by=("install.one-framework",), smoke=("install.one-framework",))
def two_frameworks() -> None:
    """A second distribution that provides paddle is installed."""
    import pathlib
    import sys
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp()) / "paddlepaddle_gpu-3.3.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: paddlepaddle-gpu\nVersion: 3.3.1\n")
    sys.path.append(str(folder.parent))


@fault("00_environment", detected_by=("install.versions",), smoke=("install.versions",))
def numpy_too_new() -> None:
    """The installed numpy is too new for PaddleNLP."""
    import pathlib
    import sys
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp()) / "numpy-2.4.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.4.0\n")
    sys.path.insert(0, str(folder.parent))


@fault(
    "00_environment",
    device="sim",
    sim_faults="flip copy kind=d2h bytes>=60000 from=1 every=2 bit=3",
    detected_by=("bandwidth.round-trip",),
)
def copies_with_an_inverted_bit() -> None:
    """A bit is inverted in every other large copy from the card."""


@fault("00_environment", device="sim", detected_by=("numerics.place",), smoke=("numerics.place",))
def stays_on_the_cpu() -> None:
    """Tensors are made on the CPU, whatever device is selected."""
    import paddle

    to_tensor = paddle.to_tensor

    def on_the_cpu(data, dtype=None, place=None, stop_gradient=True):
        return to_tensor(data, dtype=dtype, place=paddle.CPUPlace(), stop_gradient=stop_gradient)

    paddle.to_tensor = on_the_cpu


@fault("00_environment", detected_by=("numerics.gradients",))
def value_set_without_gradient() -> None:
    """The gradient of values that are set under a mask is 0, as in Paddle 3.1.0."""
    import paddle

    put = paddle.Tensor.__setitem__

    def without(self, where, value):
        if isinstance(value, paddle.Tensor) and not value.stop_gradient:
            value = value.detach() + 0 * value
        put(self, where, value)

    paddle.Tensor.__setitem__ = without


@fault("00_environment", device="sim", detected_by=("hardware.cards",))
def vendor_tool_misses_a_card() -> None:
    """The vendor's tool lists one card less than Paddle finds."""
    from xpulab import sim

    count = sim.loaded_cards
    sim.loaded_cards = lambda: max(0, count() - 1)


@fault("00_environment", device="sim", detected_by=("hardware.diagnosis",), smoke=("hardware.diagnosis",))
def wheel_of_another_device() -> None:
    """The installed wheel was built for another device."""
    from dataclasses import replace

    from xpulab.doctor import paddle_facts

    facts = paddle_facts.paddle_facts
    paddle_facts.paddle_facts = lambda: replace(facts(), built_for="gpu")


@fault("00_environment", detected_by=("numerics.edges",))
def softmax_overflows() -> None:
    """Softmax does not subtract the largest score, so large scores overflow."""
    import paddle

    def softmax(x, axis=-1, *given):
        powers = paddle.exp(x)
        return powers / powers.sum(axis=-1, keepdim=True)

    paddle.nn.functional.softmax = softmax


@fault("00_environment", detected_by=("numerics.functions",))
def activations_in_bfloat16() -> None:
    """Silu, sigmoid, gelu and erf are computed in bfloat16 where float32 was asked for."""
    import paddle

    def rounded(function):
        return lambda x, *given, **named: function(x.astype("bfloat16"), *given, **named).astype(x.dtype)

    for module in (paddle, paddle.nn.functional):
        for name in ("silu", "sigmoid", "gelu", "erf"):
            if hasattr(module, name):
                setattr(module, name, rounded(getattr(module, name)))


@fault("00_environment", detected_by=("numerics.gradients",))
def layer_norm_gradient_without_mean() -> None:
    """The gradient of layer norm omits the part of the mean."""
    import paddle

    def layer_norm(x, shape, weight=None, bias=None, epsilon=1e-5, name=None):
        mean = x.mean(axis=-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdim=True)
        normal = (x - mean.detach()) / paddle.sqrt(variance + epsilon)
        normal = normal if weight is None else normal * weight
        return normal if bias is None else normal + bias

    paddle.nn.functional.layer_norm = layer_norm


@fault("00_environment", detected_by=("numerics.edges", "numerics.storage"))
def bfloat16_cast_truncates() -> None:
    """A cast to bfloat16 truncates instead of rounding."""
    import paddle

    cast = paddle.Tensor.astype

    def astype(self, dtype):
        if str(dtype).endswith("bfloat16") and str(self.dtype).endswith("float32"):
            return cast(paddle.to_tensor((self.numpy().view("uint32") & 0xFFFF0000).view("float32")), dtype)
        return cast(self, dtype)

    paddle.Tensor.astype = astype


@fault("00_environment", detected_by=("bandwidth.round-trip",))
def transposed_copy_in_memory_order() -> None:
    """A transposed tensor is copied to the host in the order of its memory."""
    import paddle

    real = paddle.Tensor.numpy

    def numpy(self, *given):
        if self.is_contiguous():
            return real(self, *given)
        return real(self.contiguous()).reshape(-1, order="F").reshape(self.shape)

    paddle.Tensor.numpy = numpy


@fault("00_environment", detected_by=("numerics.edges",))
def sorted_indices_in_another_order() -> None:
    """Topk and argsort give the right indices in the wrong order."""
    import paddle

    topk, argsort = paddle.topk, paddle.argsort
    paddle.topk = lambda *given, **named: tuple(part.flip(-1) for part in topk(*given, **named))
    paddle.argsort = lambda *given, **named: argsort(*given, **named).flip(-1)


@fault("00_environment", detected_by=("numerics.gradients",))
def embedding_gradient_of_the_last() -> None:
    """Only the last occurrence of a token adds to the embedding's gradient."""
    import paddle

    class Embedding(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, tokens, weight):
            ctx.save_for_backward(tokens, weight)
            return paddle.gather(weight, tokens.reshape([-1])).reshape([*tokens.shape, weight.shape[1]])

        @staticmethod
        def backward(ctx, slope):
            tokens, weight = ctx.saved_tensor()
            rows = slope.reshape([-1, weight.shape[1]])
            return None, paddle.scatter(paddle.zeros_like(weight), tokens.reshape([-1]), rows, overwrite=True)

    paddle.nn.functional.embedding = lambda tokens, weight, *given, **named: Embedding.apply(tokens, weight)


@fault("00_environment", detected_by=("numerics.matmul",))
def transpose_ignored() -> None:
    """Matmul ignores transpose_y for square matrices."""
    import paddle

    matmul = paddle.matmul

    def without_transpose(x, y, transpose_x=False, transpose_y=False, name=None):
        return matmul(x, y, transpose_x, transpose_y and y.shape[-1] != y.shape[-2])

    paddle.matmul = paddle.Tensor.matmul = without_transpose


@fault("00_environment", detected_by=("numerics.edges",))
def cumsum_excludes_the_element() -> None:
    """Cumsum excludes the element itself."""
    import paddle

    cumsum = paddle.cumsum
    paddle.cumsum = lambda x, *given, **named: cumsum(x, *given, **named) - x


@fault("00_environment", detected_by=("numerics.gradients",))
def masked_values_get_gradients() -> None:
    """masked_fill gives gradients to the values that it replaces."""
    import paddle

    fill = paddle.masked_fill
    paddle.masked_fill = lambda x, mask, value: fill(x, mask, value).detach() + (x - x.detach())


@fault("00_environment", detected_by=("numerics.first-training", "numerics.from-pytorch"))
def clear_grad_keeps_gradients() -> None:
    """Clear_grad keeps the gradients, so that those of all steps add up."""
    import paddle

    paddle.optimizer.Optimizer.clear_grad = lambda self, set_to_zero=True: None


@fault("00_environment", detected_by=("numerics.from-pytorch",))
def state_dict_is_not_loaded() -> None:
    """Set_state_dict reports success and changes no parameter of a layer."""
    import paddle

    paddle.nn.Layer.set_state_dict = lambda self, state, use_structured_name=True: ([], [])


@fault("00_environment", device="sim", detected_by=("numerics.from-pytorch",))
def batches_stay_on_the_host() -> None:
    """A data loader leaves its batches on the CPU."""
    import paddle

    batches = paddle.io.DataLoader.__iter__
    paddle.io.DataLoader.__iter__ = lambda self: iter([[each.cpu() for each in batch] for batch in batches(self)])


@fault("00_environment", detected_by=("numerics.first-product",), smoke=("numerics.first-product",))
def transposed_right_factor() -> None:
    """A matrix product of square matrices uses the transpose of its right factor."""
    import paddle

    product = paddle.Tensor.__matmul__

    def transposed(self, other):
        return product(self, other.T)

    paddle.Tensor.__matmul__ = transposed
