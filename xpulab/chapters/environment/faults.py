"""The faults of this chapter."""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from xpulab.chapters.shared.fault import FILES, MACHINE, fault, list_simulated_cards, paddle


def _is_second_card() -> bool:
    """Whether the card in use is the second one."""
    return paddle.get_device().endswith(":1")


@fault(
    "card-vote.step",
    "card-vote.repeat",
    lanes=("sim",),
    smoke=("card-vote.step", "card-vote.repeat"),
    after="paddle.nn.functional:cross_entropy",
)
def one_card_does_not_repeat(loss, *given):
    """The second card adds a number of random size to each loss, as a kernel does that reads what it did not write."""
    return loss + 1e-3 * paddle.rand([]) if _is_second_card() else loss


@fault("card-vote.memory", lanes=("sim",), smoke=("card-vote.memory",), wraps="paddle:set_device")
def set_device_stays_on_the_first_card(set_device, device):
    """paddle.set_device ignores the number of the card, so all cards are the first one and all votes agree."""
    return set_device(str(device).replace(":1", ":0"))


@fault(
    "hardware.identities",
    lanes=("sim",),
    smoke=("hardware.identities",),
    after=("xpulab.sim:serial_number", "xpulab.doctor.xpu_smi:run_tool"),
)
def one_card_is_listed_twice(shown, *_given):
    """The vendor's tool shows the serial number of the first card for every card."""
    text = re.sub("(simulated-|REHEARSED)[0-9]+", r"\g<1>0", shown if isinstance(shown, str) else shown.output)
    return text if isinstance(shown, str) else replace(shown, output=text)


@fault("bandwidth.clock", lanes=("sim",), wraps="paddle:device.synchronize")
def synchronize_does_not_wait(_real, device=None):
    """paddle.device.synchronize returns at once, so every clock stops too early."""


@fault("bandwidth.data-sheet", lanes=("sim",), wraps="time:perf_counter")
def clock_runs_too_slowly(real):
    """A clock shows a millionth of the time, so that rates are above what the hardware can do."""
    return real() / 1e6


@fault("bandwidth.data-sheet", lanes=("sim",), smoke=("bandwidth.data-sheet",), breaks=FILES)
def cards_are_not_what_they_say() -> None:
    """The model that the vendor's tool shows is a thousand times faster than the cards."""
    list_simulated_cards("tflops: {float32: 1000}")


@fault("passport.defects", lanes=("cpu", "sim"), wraps="paddle.nn.functional:embedding")
def repeated_rows_count_once(embedding, tokens, table):
    """An embedding's gradient counts a token that occurs several times once, as users of XPUs reported."""
    first = paddle.to_tensor([token not in tokens.tolist()[:place] for place, token in enumerate(tokens.tolist())])
    rows = embedding(tokens, table)
    return paddle.where(first.unsqueeze(-1), rows, rows.detach())


@fault(
    "hardware.cards",
    lanes=("sim",),
    smoke=("hardware.cards",),
    wraps=("xpulab.sim:loaded_cards", "xpulab.doctor.meant:visible_cards"),
)
def card_hidden_from_paddle(count, *machine):
    """Paddle finds one card less than there are, and nothing that hides it: a card that no longer answers."""
    shown = count(*machine)
    return (shown[0] + 1, shown[1]) if machine else shown and shown + 1


@fault("install.run-check", lanes=("sim",), wraps="paddle.utils:run_check")
def run_check_verifies_the_cpu(_real):
    """paddle.utils.run_check finds no card, verifies the CPU and reports success."""
    return print("PaddlePaddle works well on 1 CPU.\nPaddlePaddle is installed successfully!")


@fault("install.imports", breaks=MACHINE)
def package_of_the_stack_does_not_fit() -> None:
    """A package of PaddleNLP's stack cannot be imported, because another one has a version that it was not made for."""
    sys.modules["paddlenlp.trl"] = None


@fault("numerics.matmul", "numerics.first-product", smoke=("numerics.first-product",), wraps="paddle:Tensor.__matmul__")
def matmul_in_bfloat16(product, *factors):
    """Matrix products are computed in bfloat16 where float32 was asked for."""
    return product(*(each.astype("bfloat16").astype(each.dtype) for each in factors))


def _folder_with_a_distribution(name: str, version: str) -> str:
    """A folder that makes the distribution look installed where it is on the path."""
    folder = Path(tempfile.mkdtemp()) / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder.parent)


@fault("install.one-framework", "hardware.diagnosis", smoke=("install.one-framework",), breaks=MACHINE)
def two_frameworks() -> None:
    """A second distribution that provides paddle is installed."""
    sys.path.append(_folder_with_a_distribution("paddlepaddle-gpu", "3.3.1"))


@fault("install.versions", smoke=("install.versions",), breaks=MACHINE)
def numpy_too_new() -> None:
    """The installed numpy is too new for PaddleNLP."""
    sys.path.insert(0, _folder_with_a_distribution("numpy", "2.4.0"))


@fault("numerics.place", lanes=("sim",), smoke=("numerics.place",), wraps="paddle:to_tensor")
def stays_on_the_cpu(to_tensor, data, dtype=None, place=None, stop_gradient=True):
    """Tensors are made on the CPU, whatever device is selected."""
    return to_tensor(data, dtype=dtype, place=paddle.CPUPlace(), stop_gradient=stop_gradient)


@fault("hardware.diagnosis", lanes=("sim",), smoke=("hardware.diagnosis",), wraps="xpulab.doctor.paddle_facts:paddle_facts")
def wheel_of_another_device(facts):
    """The installed wheel was built for another device."""
    return replace(facts(), built_for="gpu")


@fault("numerics.storage", "numerics.exercise-rounding", wraps="paddle:Tensor.astype")
def bfloat16_cast_truncates(cast, self, dtype):
    """A cast to bfloat16 truncates instead of rounding."""
    if str(dtype).endswith("bfloat16") and str(self.dtype).endswith("float32"):
        return cast(paddle.to_tensor((self.numpy().view("uint32") & 0xFFFF0000).view("float32")), dtype)
    return cast(self, dtype)


@fault("bandwidth.round-trip", wraps="paddle:Tensor.numpy")
def transposed_copy_in_memory_order(real, self, *given):
    """A transposed tensor is copied to the host in the order of its memory."""
    if self.is_contiguous():
        return real(self, *given)
    return real(self.contiguous()).reshape(-1, order="F").reshape(self.shape)


@fault("numerics.first-training", "numerics.exercise-gradients", wraps="paddle.optimizer:Optimizer.clear_grad")
def clear_grad_keeps_gradients(_real, self, set_to_zero=True):
    """clear_grad keeps the gradients, so that those of all steps add up."""


@fault(
    "bandwidth.baseline", wraps="paddle:Tensor.clone", not_run="it compares where a baseline of this machine was measured only"
)
def copies_on_the_device_go_through_the_host(clone, self):
    """A copy on the device goes to the host and back, which is right and many times slower."""
    return clone(paddle.to_tensor(clone(self).numpy(), stop_gradient=self.stop_gradient))
