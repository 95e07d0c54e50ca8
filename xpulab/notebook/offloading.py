"""Keep tensors in host memory and bring them back to the device, asynchronously where Paddle can do that.

    offloader = Offloader()
    kept = offloader.to_host(tensor)      # starts the copy
    tensor = offloader.to_device(kept)    # waits for it, and copies back
    print(offloader.how)                  # what the device can do: nothing is left out silently

Paddle 3.3.1 copies asynchronously on a GPU only (paddle.incubate.tensor.manipulation.async_offload). On an XPU and on other
cards async_offload copies while the program waits. On a CPU it raises an error, because there is no loader; then a tensor of the
same memory takes the place of the copy in host memory. The code for GPU and XPU has not been run on such a card yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import paddle
from paddle.incubate.tensor import manipulation

ASYNCHRONOUS = "asynchronous copies"


@dataclass
class HostCopy:
    """A tensor in host memory.

    tensor: the copy, on the CPU or in page-locked memory. place: where the tensor was. task: what waits for the copy, or None
    when it is complete. source: the tensor, which must exist until then, or None.
    """

    tensor: Any
    place: Any
    task: Any = None
    source: Any = None

    def finish(self) -> None:
        """Wait until the copy is complete, and let go of the tensor on the device."""
        if self.task is not None:
            self.task.cpu_wait()
        self.task = self.source = None


@dataclass
class Offloader:
    """Copies to host memory and back.

    how: ASYNCHRONOUS, or why the program waits for each copy.
    """

    how: str = field(default="", init=False)
    _loader: Any = field(default=None, init=False)
    _started: list[HostCopy] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._loader, self.how = _loader_of_the_device()

    def to_host(self, tensor: Any) -> HostCopy:
        """Start to copy the tensor to host memory. It must not be written before finish(), or to_device() of this copy."""
        if self._loader is None:
            return HostCopy(_copied(tensor.detach(), paddle.CPUPlace()), tensor.place)
        kept, task = manipulation.async_offload(tensor, self._loader)
        copy = HostCopy(kept, tensor.place, task, tensor)
        self._started = [each for each in self._started if not _is_complete(each)]
        self._started.append(copy)
        return copy

    def to_device(self, copy: HostCopy) -> Any:
        """The tensor, again where it was; the copy to host memory is complete before."""
        copy.finish()
        if self._loader is None:
            return _copied(copy.tensor, copy.place)
        back, task = manipulation.async_reload(copy.tensor, self._loader)
        task.cpu_wait()
        return back

    def finish(self) -> None:
        """Wait for all copies to host memory that were started: then their tensors on the device may be written or freed."""
        for copy in self._started:
            copy.finish()
        self._started = []


def _is_complete(copy: HostCopy) -> bool:
    if copy.task is not None and copy.task.is_completed():
        copy.finish()
    return copy.task is None


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


def round_trip(tensor: Any) -> tuple[Any, Any, Any]:
    """The tensor in host memory, where it was kept there, and what comes back."""
    offloader = Offloader()
    kept = offloader.to_host(tensor)
    back = offloader.to_device(kept)
    return kept.tensor, str(kept.tensor.place), back


def overtaken_rounds(values: Sequence[float], elements: int) -> list[int]:
    """The numbers of the rounds in which a copy has values that were written after finish().

    values: what the tensor holds in each round.
    """
    offloader, wrong = Offloader(), []
    tensor = paddle.zeros([elements])
    for number, value in enumerate(values):
        tensor.fill_(value)
        kept = offloader.to_host(tensor)
        offloader.finish()
        tensor.fill_(-1.0)
        back = offloader.to_device(kept)
        if bool((back != value).any()):
            wrong.append(number)
    return wrong
