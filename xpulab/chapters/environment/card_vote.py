"""The same seeded training step on every card: a card whose result differs from that of the majority is the suspect.

A vote needs no stored value: cards of one model must compute the same bits from the same numbers. Not run
on a GPU or XPU.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.device import Device, card_count
from xpulab.chapters.shared.precision import supported_types

STEPS = 2
ROWS, WIDTH, CLASSES = 128, 256, 16
_ODD = 2654435761
"""An odd number: multiplied by it modulo 2^32, different positions have different values."""


@dataclass(frozen=True)
class Memory:
    """What happened to the memory of the cards when each got a pattern of its own. All by card, as in cards_of.

    places: where the pattern's tensor is. grew: the cards whose allocated memory grew meanwhile. written, read: the pattern,
    and what was read after all cards had been written.
    """

    places: dict[str, str]
    grew: dict[str, list[str]]
    written: dict[str, np.ndarray]
    read: dict[str, np.ndarray]


def cards_of(device: Device) -> list[str]:
    """The names of all cards that Paddle sees, ["xpu:0", "xpu:1"]; none for the CPU, which is not a card.

    These may be more than the chapter uses: a card that computes wrong is wrong for whoever gets it next.
    """
    return [] if device.name == "cpu" else [f"{device.name}:{number}" for number in range(card_count(device.name))]


@contextmanager
def on(card: str) -> Iterator[None]:
    """Inside the block new tensors are on this card; afterwards on the same one as before."""
    before = paddle.get_device()
    paddle.set_device(card)
    try:
        yield
    finally:
        paddle.set_device(before)


def step_on_each(cards: Sequence[str], seed: int) -> dict[str, dict[str, str]]:
    """By card the hashes of step()."""
    found = {}
    for card in cards:
        with on(card):
            found[card] = step(seed)
    return found


def step(seed: int) -> dict[str, str]:
    """Train a small model for some steps on the card in use. Returns hashes of what the card computed, by part.

    The parts: "losses", "gradients" and "weights" in float32, and the products in the types that the card claims, as
    "product, float16". The model has products, softmax, layer normalization, gelu and cross entropy; the optimizer is AdamW.
    All numbers come from numpy, because a card draws its own random numbers; no operator adds in an order of its choice.
    """
    rng = np.random.default_rng(seed)
    inputs = paddle.to_tensor(rng.standard_normal((ROWS, WIDTH)).astype("float32"))
    labels = paddle.to_tensor(rng.integers(0, CLASSES, ROWS))
    layers = [paddle.nn.Linear(WIDTH, WIDTH), paddle.nn.LayerNorm(WIDTH), paddle.nn.Linear(WIDTH, CLASSES)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    for parameter in parameters:
        parameter.set_value(rng.standard_normal(parameter.shape).astype("float32") / WIDTH**0.5)
    optimizer = paddle.optimizer.AdamW(learning_rate=0.01, parameters=parameters)
    losses: list[Any] = []
    gradients: list[Any] = []
    for _ in range(STEPS):
        hidden = layers[1](F.gelu(layers[0](inputs)))
        mixed = F.softmax(hidden @ hidden.T / WIDTH**0.5) @ hidden
        loss = F.cross_entropy(layers[2](mixed), labels)
        loss.backward()
        losses.append(loss)
        slopes: list[Any] = [parameter.grad for parameter in parameters]
        gradients += [slope.clone() for slope in slopes]
        optimizer.step()
        optimizer.clear_grad()
    hashes = {"losses": _hash(losses), "gradients": _hash(gradients), "weights": _hash(parameters)}
    types: list[Any] = list(supported_types(paddle.get_device().partition(":")[0]))
    for dtype in types:
        factor = inputs.astype(dtype)
        hashes[f"product, {dtype}"] = _hash([(factor @ factor.T).astype("float64")])
    return hashes


def example(seed: int) -> dict[str, dict[str, str]]:
    """What step_on_each would return for three cards of which the second has other weights: the hashes of the card in use."""
    right = step(seed)
    return {"card 0": right, "card 1": altered(right, "weights"), "card 2": right}


def by_part(hashes: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """By part, then by card, what step_on_each returns by card, then by part."""
    return {part: {card: hashes[card][part] for card in hashes} for part in next(iter(hashes.values()))}


def suspects(hashes: Mapping[str, str]) -> list[str]:
    """The cards whose hash is not that of the majority; ["none"] when all agree, and all cards when there is no majority.

    hashes: by card. More than half of the cards are a majority: of two cards that differ, both are suspects.
    """
    value, count = Counter(hashes.values()).most_common(1)[0]
    if count * 2 <= len(hashes) and len(hashes) > 1:
        return list(hashes)
    return [card for card, each in hashes.items() if each != value] or ["none"]


def altered(hashes: Mapping[str, str], name: str | None = None) -> dict[str, str]:
    """The same hashes, but for that of this name, or the last: a vote that must have a suspect."""
    return {**hashes, name or list(hashes)[-1]: "altered"}


def write_each(cards: Sequence[str], bytes_each: int) -> Memory:
    """Write a pattern of its own to each card, then read all of them.

    A card that answers for another one overwrites its pattern, or its memory grows in place of the other's.
    """
    tensors, places, grew, written = {}, {}, {}, {}
    for number, card in enumerate(cards):
        places_of_pattern = np.arange(bytes_each // 4, dtype="uint32")
        written[card] = (places_of_pattern * np.uint32(_ODD) + np.uint32(number + 1)).view("int32")
        before = _allocated(cards)
        with on(card):
            tensors[card] = paddle.to_tensor(written[card])
        places[card] = str(tensors[card].place).removeprefix("Place(").removesuffix(")")
        after = _allocated(cards)
        grew[card] = [each for each in cards if after[each] - before[each] >= bytes_each]
    return Memory(places, grew, written, {card: tensor.numpy() for card, tensor in tensors.items()})


def _allocated(cards: Sequence[str]) -> dict[str, int]:
    """By card the bytes that Paddle's tensors have on it."""
    return {card: int(paddle.device.memory_allocated(card)) for card in cards}


def _hash(tensors: Sequence[paddle.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:8]
