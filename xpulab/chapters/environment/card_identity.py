"""Which cards the vendor's tool lists, and whether two of them claim to be the same one.

Not run on a GPU or XPU: the formats of the tools were taken from documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from xpulab import sim
from xpulab.devices import SIMULATED, judged_as
from xpulab.doctor import meant
from xpulab.doctor.cards import Card
from xpulab.doctor.detect import Detection


def listed_cards(device: str, detection: Detection) -> tuple[Card, ...]:
    """The cards of this kind ("cpu", "gpu", "xpu" or "sim") in the order of the vendor's tool; none for the CPU.

    Simulated cards have no tool, but in a rehearsal that of the device: else those that this process has loaded, each with a
    serial number of its own.
    """
    device = judged_as(device)
    if device == SIMULATED:
        return tuple(Card(index, "simulated", serial=sim.serial_number(index)) for index in range(sim.loaded_cards()))
    tools = {"gpu": detection.nvml, "xpu": detection.xpu_smi}
    return tools[device].cards if device in tools else ()


def wanted_cards(device: str, detection: Detection, seen: int) -> tuple[int, int]:
    """How many cards of this kind ("gpu", "xpu" or "sim") Paddle must see, and how many there are; no cards: it is not known.

    All that are expected, where somebody said so (--expect), else those that nothing hides. seen: how many it sees; more than a
    variable names are no error, since not every variable hides cards from Paddle.
    """
    device = judged_as(device)
    visible, there = (sim.loaded_cards(),) * 2 if device == SIMULATED else meant.visible_cards(device, detection)
    expect = meant.expected()
    return expect.count if expect else max(visible, min(seen, there)), there


def repeated(cards: Sequence[Card]) -> dict[str, list[str]]:
    """By kind of identity the values that more than one card has, sorted; ["none"] where all differ.

    The kinds: "index" and "PCI address", and for Kunlun and simulated cards "serial number": of NVIDIA's boards some hold
    several GPUs, which share it. A kind that the tool shows for no card is left out.
    """
    of_a_board = [card.serial for card in cards if card.generation != "cuda"]
    shown: dict[str, list[int | str | None]] = {
        "index": [card.index for card in cards],
        "PCI address": [card.pci_address for card in cards],
        "serial number": list(of_a_board),
    }
    return {kind: _repeated(values) for kind, values in shown.items() if any(value is not None for value in values)}


def _repeated(values: Sequence[int | str | None]) -> list[str]:
    counts = Counter(str(value) for value in values if value is not None)
    return sorted(value for value, count in counts.items() if count > 1) or ["none"]
