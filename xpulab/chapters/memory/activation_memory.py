"""Where the memory of one training step goes: weights, gradients, optimizer state and activations, tensor by tensor.

    memory = StepMemory(network, optimizer)
    with memory.saving():
        loss = network(tokens, labels=tokens)[0]
        loss.backward()
    optimizer.step()
    memory.sample()
    memory.samples, memory.peak

Chapter 05 shows this class without `store` and `restore`, in fifteen lines. It needs no statistics of the device: Paddle calls
the hooks of `paddle.autograd.saved_tensors_hooks` for every tensor that it keeps for the backward pass. A tensor counts from
when it is saved until it is used for the last time. A tensor that is saved several times counts once, and a saved weight not
at all, because it exists anyway. Paddle allows one pair of hooks at a time: recomputation needs `use_reentrant=True` while this
class measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import paddle


@dataclass(frozen=True)
class Sample:
    """Bytes on the device at one moment of a step.

    weights, gradients: of the network's parameters. optimizer: of the optimizer's state.
    activations: what autograd keeps, weights not counted.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.optimizer + self.activations


class StepMemory:
    """Counts the bytes of a step whenever a tensor is saved or used, and when sample() is called.

    samples: in the order of time.
    """

    def __init__(self, network: Any, optimizer: Any) -> None:
        self.samples: list[Sample] = []
        self._optimizer = optimizer
        self._sizes_of_weights = [(weight, bytes_of([weight])) for weight in network.parameters()]
        self._weights = {weight.data_ptr() for weight, _ in self._sizes_of_weights}
        self._uses: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._state_bytes = 0
        self.sample()

    @property
    def peak(self) -> Sample:
        """The sample with the largest sum."""
        return max(self.samples, key=lambda each: each.total)

    def largest_activations(self) -> int:
        """The most bytes that autograd kept at a time."""
        return max(each.activations for each in self.samples)

    def saving(
        self, store: Callable[[Any], Any] | None = None, restore: Callable[[Any], Any] | None = None
    ) -> paddle.autograd.saved_tensors_hooks:
        """Hooks that count, for a `with` block around forward and backward pass.

        store, restore: keep each tensor, except weights, in another form, and make the tensor of it; store may return the
        tensor itself. What is kept in another form counts as not on the device, except when it is stored and restored.
        """

        def pack(tensor: Any) -> Any:
            pointer = tensor.data_ptr()
            if pointer in self._weights:
                return _Kept(tensor, None)
            stored = tensor if store is None else store(tensor)
            if stored is not tensor:
                self._count(bytes_of([tensor]))
                return stored
            self._uses[pointer] = self._uses.get(pointer, 0) + 1
            self._sizes[pointer] = max(self._sizes.get(pointer, 0), bytes_of([tensor]))
            self._count(0)
            return _Kept(tensor, pointer)

        def unpack(kept: Any) -> Any:
            if not isinstance(kept, _Kept):
                assert restore is not None  # as store was given
                tensor = restore(kept)
                self._count(bytes_of([tensor]))
                return tensor
            self._count(0)
            tensor, pointer = kept.tensor, kept.pointer
            if pointer is not None:
                self._uses[pointer] -= 1
                if not self._uses[pointer]:
                    del self._uses[pointer], self._sizes[pointer]
            return tensor

        return paddle.autograd.saved_tensors_hooks(pack, unpack)

    def sample(self) -> None:
        """Count now. Moments are looked at here only: they do not change in a forward or backward pass."""
        self._state_bytes = bytes_of(states_of(self._optimizer))
        self._count(0)

    def _count(self, passing: int) -> None:
        """passing: bytes of a tensor that is on the device only for this moment."""
        weights = sum(size for _, size in self._sizes_of_weights)
        gradients = sum(size for weight, size in self._sizes_of_weights if weight.grad is not None)
        self.samples.append(Sample(weights, gradients, self._state_bytes, sum(self._sizes.values()) + passing))


@dataclass(frozen=True)
class _Kept:
    """A tensor that autograd keeps; pointer: where its numbers are, or None when they do not count."""

    tensor: Any
    pointer: int | None


def states_of(optimizer: Any) -> list[Any]:
    """What the optimizer holds for the parameters at this moment: moments, powers of beta, master weights.

    Tensors, or whatever stands for them while they are not on the device.
    """
    kinds = [*optimizer._accumulators.values(), optimizer._master_weights]
    return [state for kind in kinds for state in kind.values()]


def bytes_of(values: Iterable[Any]) -> int:
    """The bytes of those of the values that are tensors."""
    return sum(int(each.size) * each.element_size() for each in values if isinstance(each, paddle.Tensor))
