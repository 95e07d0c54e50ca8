"""In place of xpulab.chapters.shared.device: choose where Paddle computes, and say where tensors are."""

import contextlib
from types import SimpleNamespace

import paddle

from xpulab.records.usable import whole_cores


def use_device(name="cpu", cards=1):
    """The device with its name, its place for paddle.set_device, and how many cards may be used."""
    place = name if name == "cpu" else f"{name}:0"
    paddle.set_device(place)
    return SimpleNamespace(name=name, place=place, cards=cards)


def places(tensors):
    """The kinds of device that these tensors are on, sorted, each once."""
    values = tensors.values() if isinstance(tensors, dict) else tensors
    kinds = {
        str(each.place).removeprefix("Place(").removesuffix(")").split(":", 1)[0] for each in values if hasattr(each, "place")
    }
    return sorted(kinds)


@contextlib.contextmanager
def no_fallback():
    """Inside the block an operator without a kernel for the device raises instead of running on the CPU."""
    flag = "FLAGS_enable_api_kernel_fallback"
    before = paddle.get_flags(flag)
    paddle.set_flags({flag: False})
    try:
        yield
    finally:
        paddle.set_flags(before)


def synchronize(device):
    """Wait until the device has finished all work."""
    if device.name != "cpu":
        paddle.device.synchronize()


def card_count(name):
    """How many cards Paddle sees; for the CPU the number of cores that this process may use."""
    return whole_cores() if name == "cpu" else getattr(paddle.device, {"gpu": "cuda"}.get(name, name)).device_count()
