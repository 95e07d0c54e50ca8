"""Faults that 00_environment must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("00_environment", detected_by=("numerics.matmul", "numerics.first-product"))
def matmul_in_bfloat16() -> None:
    """Matrix products are computed in bfloat16 where float32 was asked for."""
    import paddle

    product = paddle.Tensor.__matmul__

    def rounded(tensor):
        return tensor.astype("bfloat16").astype(tensor.dtype)

    paddle.Tensor.__matmul__ = lambda self, other: product(rounded(self), rounded(other))


@fault("00_environment", detected_by=("install.one-framework", "hardware.diagnosis"), smoke=("install.one-framework",))
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


@fault("00_environment", detected_by=("numerics.storage",))
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


@fault("00_environment", detected_by=("numerics.matmul",))
def transpose_ignored() -> None:
    """Matmul ignores transpose_y for square matrices."""
    import paddle

    matmul = paddle.matmul

    def without_transpose(x, y, transpose_x=False, transpose_y=False, name=None):
        return matmul(x, y, transpose_x, transpose_y and y.shape[-1] != y.shape[-2])

    paddle.matmul = paddle.Tensor.matmul = without_transpose


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
