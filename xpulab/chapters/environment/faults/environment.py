"""Faults of the installation, and of first values, copies and steps."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from xpulab.chapters.shared.fault import MACHINE, fault, paddle


@fault(detected_by=("numerics.matmul", "numerics.first-product"), wraps="paddle:Tensor.__matmul__")
def matmul_in_bfloat16(product, *factors):
    """Matrix products are computed in bfloat16 where float32 was asked for."""
    return product(*(each.astype("bfloat16").astype(each.dtype) for each in factors))


def _folder_with_a_distribution(name: str, version: str) -> str:
    """A folder that makes the distribution look installed where it is on the path."""
    folder = Path(tempfile.mkdtemp()) / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder.parent)


@fault(detected_by=("install.one-framework", "hardware.diagnosis"), smoke=("install.one-framework",), breaks=MACHINE)
def two_frameworks() -> None:
    """A second distribution that provides paddle is installed."""
    sys.path.append(_folder_with_a_distribution("paddlepaddle-gpu", "3.3.1"))


@fault(detected_by=("install.versions",), smoke=("install.versions",), breaks=MACHINE)
def numpy_too_new() -> None:
    """The installed numpy is too new for PaddleNLP."""
    sys.path.insert(0, _folder_with_a_distribution("numpy", "2.4.0"))


@fault(device="sim", sim_faults="flip copy kind=d2h bytes>=60000 from=1 every=2 bit=3", detected_by=("bandwidth.round-trip",))
def copies_with_an_inverted_bit() -> None:
    """A bit is inverted in every other large copy from the card."""


@fault(device="sim", detected_by=("numerics.place",), smoke=("numerics.place",), wraps="paddle:to_tensor")
def stays_on_the_cpu(to_tensor, data, dtype=None, place=None, stop_gradient=True):
    """Tensors are made on the CPU, whatever device is selected."""
    return to_tensor(data, dtype=dtype, place=paddle.CPUPlace(), stop_gradient=stop_gradient)


@fault(device="sim", detected_by=("hardware.cards",), wraps="xpulab.sim:loaded_cards")
def vendor_tool_misses_a_card(count):
    """The vendor's tool lists one card less than Paddle finds."""
    return max(0, count() - 1)


@fault(
    device="sim",
    detected_by=("hardware.diagnosis",),
    smoke=("hardware.diagnosis",),
    wraps="xpulab.doctor.paddle_facts:paddle_facts",
)
def wheel_of_another_device(facts):
    """The installed wheel was built for another device."""
    return replace(facts(), built_for="gpu")


@fault(detected_by=("numerics.storage", "numerics.exercise-rounding"), wraps="paddle:Tensor.astype")
def bfloat16_cast_truncates(cast, self, dtype):
    """A cast to bfloat16 truncates instead of rounding."""
    if str(dtype).endswith("bfloat16") and str(self.dtype).endswith("float32"):
        return cast(paddle.to_tensor((self.numpy().view("uint32") & 0xFFFF0000).view("float32")), dtype)
    return cast(self, dtype)


@fault(detected_by=("bandwidth.round-trip",), wraps="paddle:Tensor.numpy")
def transposed_copy_in_memory_order(real, self, *given):
    """A transposed tensor is copied to the host in the order of its memory."""
    if self.is_contiguous():
        return real(self, *given)
    return real(self.contiguous()).reshape(-1, order="F").reshape(self.shape)


@fault(detected_by=("numerics.matmul",), wraps=("paddle:matmul", "paddle:Tensor.matmul"))
def transpose_ignored(matmul, x, y, transpose_x=False, transpose_y=False, name=None):
    """Matmul ignores transpose_y for square matrices."""
    return matmul(x, y, transpose_x, transpose_y and y.shape[-1] != y.shape[-2])


@fault(
    detected_by=("numerics.first-training", "numerics.from-pytorch", "numerics.exercise-gradients"),
    wraps="paddle.optimizer:Optimizer.clear_grad",
)
def clear_grad_keeps_gradients(_real, self, set_to_zero=True):
    """clear_grad keeps the gradients, so that those of all steps add up."""


@fault(detected_by=("numerics.from-pytorch",), wraps="paddle.nn:Layer.set_state_dict")
def state_dict_is_not_loaded(_real, self, state, use_structured_name=True):
    """set_state_dict reports success and changes no parameter of a layer."""
    return ([], [])


@fault(device="sim", detected_by=("numerics.from-pytorch",), wraps="paddle.io:DataLoader.__iter__")
def batches_stay_on_the_host(batches, self):
    """A data loader leaves its batches on the CPU."""
    return iter([[each.cpu() for each in batch] for batch in batches(self)])


@fault(detected_by=("numerics.first-product",), smoke=("numerics.first-product",), wraps="paddle:Tensor.__matmul__")
def transposed_right_factor(product, self, other):
    """A matrix product of square matrices uses the transpose of its right factor."""
    return product(self, other.T)


@fault(detected_by=("install.remedies",), wraps="paddle:set_device")
def set_device_accepts_any_device(set_device, device):
    """paddle.set_device accepts a device for which the wheel was not built, and stays where it is."""
    try:
        return set_device(device)
    except ValueError:
        return paddle.framework._current_expected_place()


@fault(detected_by=("numerics.no-fallback",), wraps="paddle.nn.functional:layer_norm", not_run="it compares on real cards only")
def layer_norm_has_no_kernel_for_the_card(layer_norm, x, *given, **named):
    """layer_norm has no kernel for the card, and gives NaN where the fallback to the CPU is switched off."""
    flag = "FLAGS_enable_api_kernel_fallback"
    return layer_norm(x, *given, **named) * (1.0 if paddle.get_flags(flag)[flag] else float("nan"))


@fault(detected_by=("bandwidth.pinned",), wraps="paddle:Tensor.pin_memory", not_run="it compares on real cards only")
def copy_to_pinned_memory_loses_its_last_page(pin_memory, self, *given, **named):
    """A copy to pinned memory is read before its last 4096 bytes have arrived."""
    flat = self.flatten().clone()
    flat[-4096 // self.element_size() :] = 0
    return pin_memory(flat.reshape(self.shape), *given, **named)


@fault(
    detected_by=("bandwidth.baseline",),
    wraps="paddle:Tensor.clone",
    not_run="it compares where a baseline of this machine was measured only",
)
def copies_on_the_device_go_through_the_host(clone, self):
    """A copy on the device goes to the host and back, which is right and many times slower."""
    return clone(paddle.to_tensor(clone(self).numpy(), stop_gradient=self.stop_gradient))
