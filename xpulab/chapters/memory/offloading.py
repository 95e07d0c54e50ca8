"""Keep tensors in host memory and bring them back to the device, asynchronously where Paddle can do that.

    offloader = Offloader()
    kept = offloader.to_host(tensor)      # starts the copy; a view of a part of other memory stays as it is
    tensor = offloader.to_device(kept)    # waits for it, and copies back
    print(offloader.how)                  # what the device can do: nothing is left out silently

Chapter 05 shows this class without asynchronous copies.

Paddle 3.3.1 copies asynchronously on a GPU only (paddle.incubate.tensor.manipulation.async_offload). On an XPU and on other
cards async_offload copies while the program waits; on an XPU async_reload always copies to the first card, as its source shows.
On a CPU there is no loader, and a second tensor in the same memory takes the place of the copy. The code for GPU and XPU has
not been run on such a card yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.incubate.tensor import manipulation

from xpulab.chapters.shared.device import Device, synchronize
from xpulab.checks.table import Table

ASYNCHRONOUS = "asynchronous copies"


@dataclass
class HostCopy:
    """A tensor in host memory.

    tensor: the copy, on the CPU or in page-locked memory, its axes in the order of the memory. place: where the tensor was.
    axes: how to transpose the copy to get the tensor. name: of the tensor, by which AdamW finds the moments of a master weight.
    task: what waits for the copy, or None when it is complete.
    source: the tensor, which must exist until then, or None.
    """

    tensor: Any
    place: Any
    axes: tuple[int, ...]
    name: str = ""
    task: Any = None
    source: Any = None

    def finish(self) -> None:
        """Wait until the copy is complete, and let go of the tensor on the device."""
        if self.task is not None:
            self.task.cpu_wait()
        self.task = self.source = None


class Offloader:
    """Copies to host memory and back.

    how: ASYNCHRONOUS, or why the program waits for each copy. left: how many tensors were left on the device, because they are
    a part of other memory.
    """

    def __init__(self) -> None:
        self._loader, self.how = _loader_of_the_device()
        self.left = 0
        self._started: list[HostCopy] = []

    def to_host(self, tensor: Any) -> Any:
        """Start to copy the tensor to host memory: a HostCopy, or the tensor itself when it is a part of other memory.

        It must not be written before finish(), or to_device() of this copy. What comes back has the strides of the tensor.
        Paddle 3.3.1 needs that: it gives the memory that a hook for saved tensors returns the strides and the offset of the
        saved tensor. Source: measured in chapter 05, offload.saved-tensors.
        """
        axes = axes_of_memory(tensor)
        if axes is None:
            self.left += 1
            return tensor
        ordered, back = tensor.detach().transpose(axes), tuple(int(axis) for axis in np.argsort(axes))
        if self._loader is None:
            return HostCopy(_copied(ordered, paddle.CPUPlace()), tensor.place, back, tensor.name)
        kept, task = manipulation.async_offload(ordered, self._loader)
        copy = HostCopy(kept, tensor.place, back, tensor.name, task, ordered)
        for complete in [each for each in self._started if each.task is not None and each.task.is_completed()]:
            complete.finish()
        self._started = [*(each for each in self._started if each.task is not None), copy]
        return copy

    def to_device(self, copy: Any) -> Any:
        """The tensor of what to_host returned, again where it was; the copy to host memory is complete before."""
        if not isinstance(copy, HostCopy):
            return copy
        copy.finish()
        if self._loader is None:
            back = _copied(copy.tensor, copy.place)
        else:
            back, task = manipulation.async_reload(copy.tensor, self._loader)
            task.cpu_wait()
        result = back.transpose(copy.axes)
        result.name = copy.name
        return result

    def finish(self) -> None:
        """Wait for all copies to host memory that were started: then their tensors on the device may be written or freed."""
        for copy in self._started:
            copy.finish()
        self._started = []


def axes_of_memory(tensor: Any) -> list[int] | None:
    """The axes in the order in which the numbers lie in memory; None for a tensor that is a part of other memory."""
    axes = sorted(range(tensor.ndim), key=lambda axis: (-tensor.strides[axis], axis))
    whole = tensor.offset == 0 and (tensor.is_contiguous() or tensor.transpose(axes).is_contiguous())
    return (list(range(tensor.ndim)) if tensor.is_contiguous() else axes) if whole else None


def _loader_of_the_device() -> tuple[Any, str]:
    """Paddle's asynchronous loader, or None; and what it can do."""
    device = paddle.get_device().partition(":")[0]
    if device == "gpu":
        return manipulation.create_async_load(), ASYNCHRONOUS
    reason = "the CPU has one memory only" if device == "cpu" else f"Paddle has no asynchronous copies for {device}"
    return None, f"copies while the program waits: {reason}"


def _copied(tensor: Any, place: Any) -> Any:
    """A copy of the tensor at this place, also where the tensor is there already."""
    copied = tensor.to(place, blocking=True)
    return copied.clone() if copied.data_ptr() == tensor.data_ptr() else copied


# ------------------------------------------------------------------------------------------------------------------ checks


def seconds_of(device: Device, action: Callable[[], Any]) -> float:
    """The seconds of an action, until the device has finished it."""
    synchronize(device)
    start = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - start


def through_paddle(tensor: Any) -> Any:
    """What comes back from Paddle's own async_offload and async_reload."""
    loader = manipulation.create_async_load()
    kept, task = manipulation.async_offload(tensor, loader)
    task.cpu_wait()
    back, task = manipulation.async_reload(kept, loader)
    task.cpu_wait()
    return back


TYPES: tuple[Any, ...] = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")


def rows_of_copies(rows: Table, copied: Callable[[Any], Any]) -> None:
    """Rows: each layout of each type has the same bits after its way to the host and back, which `copied` makes."""
    for dtype in TYPES:
        tensor = (paddle.arange(1, 97).reshape([8, 12]) % 5 + 1).astype(dtype)
        layouts = {"whole": tensor, "transposed": tensor.t(), "every second column": tensor[:, ::2], "0-d": tensor[1, 1]}
        for layout, given in layouts.items():
            other = ~given if dtype == "bool" else (given.astype("float32") * 0.5).astype(dtype)
            found, expected, wrong = (bits_of(each) for each in (copied(given), given, other))
            rows.bitwise(f"{layout}, {dtype}", found, expected, control=wrong)


def bits_of(tensor: Any) -> dict[str, np.ndarray]:
    """Its values as numpy has them, and its type and shape, for a comparison by bits."""
    raw = {"values": tensor.numpy().tobytes(), "type and shape": f"{tensor.dtype} {tensor.shape}".encode()}
    return {name: np.frombuffer(each, np.uint8) for name, each in raw.items()}


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows 2 and 3": lambda x: x[2:4],
    "every second row": lambda x: x[::2],
    "a column": lambda x: x[:, 1:2],
    "expanded": lambda x: x[:1].expand([3, 4]),
}
"""By name a view of a matrix [6, 4]."""

NUMPY = (lambda tensor: tensor.numpy(), paddle.to_tensor)
"""The hooks of the example in Paddle's documentation of saved_tensors_hooks."""


def gradient_of_view(view: str, hooks: tuple[Callable, Callable] | None) -> np.ndarray:
    """The gradient of sum(view * factor) for the factor, which is the view; hooks: for saved tensors, or None."""
    seen = VIEWS[view](paddle.arange(1.0, 25.0).reshape([6, 4]))
    factor: Any = paddle.zeros(seen.shape)
    factor.stop_gradient = False
    with paddle.autograd.saved_tensors_hooks(*hooks) if hooks else nullcontext():
        product = seen * factor
    product.sum().backward()
    return factor.grad.numpy()


def or_nan(compute: Callable[[], Any], like: Any) -> Any:
    """What `compute` returns; where it raises an error, NaN in the shapes of `like`, an array or a list of arrays.

    For defects that raise: a row that raises is broken, one that differs can be a known issue.
    """
    try:
        return compute()
    except (TypeError, ValueError, AttributeError):
        return [np.full_like(each, np.nan) for each in like] if isinstance(like, list) else np.full_like(like, np.nan)
