"""A runner's label, such as xpu-p800-8: device, card model and count, compared with the cards of this machine.

Standard library only, fast to import: no Paddle. Written after the vendors' documents; not run on a card.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from xpulab.devices import DEVICES, MOST_CARDS, SIMULATED
from xpulab.doctor.cards import Card, Reading
from xpulab.doctor.detect import Detection
from xpulab.doctor.driver import DeviceNode
from xpulab.errors import InputError
from xpulab.messages import N_

_FORM = re.compile(rf"(?P<device>{'|'.join(DEVICES)})(?P<model>(?:-[a-z0-9]+)*)-(?P<count>[1-9][0-9]*)")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Label:
    """device: "xpu", "gpu", "cpu" or "sim". model: words of the card's model in lower case, may be empty. count: of cards.

    On "cpu" and "sim" there are as many cards as one asks for, and no model.
    """

    device: str
    model: tuple[str, ...]
    count: int

    def __str__(self) -> str:
        return "-".join([self.device, *self.model, str(self.count)])


@dataclass(frozen=True)
class Comparison:
    """fits: whether this machine has the cards of the label. line: what was found and expected."""

    fits: bool
    line: str


@dataclass(frozen=True)
class UsableCards:
    """count: how many cards driver and vendor's tool both show as usable. notes: why there are not more, one phrase each."""

    count: int
    notes: tuple[str, ...]


def parse(text: str) -> Label:
    """The label in this text: DEVICE-MODEL-COUNT or DEVICE-COUNT. Raises InputError for anything else."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(
            N_(f"label {text!r}: write device, words of the model and count, as in xpu-p800-8, gpu-a100-80gb-8 or sim-2")
        )
    label = Label(form["device"], tuple(filter(None, form["model"].split("-"))), int(form["count"]))
    if label.device in ("cpu", SIMULATED) and (label.model or label.count > MOST_CARDS):
        raise InputError(N_(f"label {text!r}: {label.device} has no model, and 1 to {MOST_CARDS} cards"))
    return label


def label_of(detection: Detection) -> Label:
    """The label of this machine: the best device it has, all words of the model, the number of cards.

    Raises InputError for cards of different models: such a machine has no label.
    """
    device = detection.device
    cards = _reading(device, detection).cards if device != "cpu" else ()
    models = {_words(card) for card in cards}
    if len(models) > 1:
        raise InputError(N_(f"cards of different models ({', '.join(sorted(_models(cards)))}): no label describes them"))
    count = len(cards) or len(_nodes(device, detection)) or 1
    return Label(device, models.pop() if models else (), count)


def compare(label: Label, detection: Detection) -> Comparison:
    """Whether this machine has exactly as many cards as the label says, and each of its model.

    Cards are counted by the vendor's tool, and compared with the device nodes of the driver. A tool that is missing, as in a
    container, leaves the nodes; the model is then not known, so only a label without one can fit.
    """
    if label.device in ("cpu", SIMULATED):
        return Comparison(True, N_(f"{label.device}: as many as one asks for"))
    reading = _reading(label.device, detection)
    nodes = _nodes(label.device, detection)
    counted = len(nodes) if reading.outcome == "missing" else len(reading.cards)
    seen = [f"{counted} {label.device}"]
    wrong = counted != label.count
    if others := [card for card in reading.cards if not set(label.model) <= set(_words(card))]:
        wrong, seen = True, [*seen, N_(f"of other models: {', '.join(sorted(_models(others)))}")]
    if label.model and not reading.cards:
        wrong, seen = True, [*seen, N_(f"the model is not known: {reading.detail}")]
    if label.device == "xpu" and nodes and len(nodes) != counted:
        wrong, seen = True, [*seen, N_(f"{len(nodes)} device nodes")]
    if notes := _unusable(label.device, detection):
        wrong, seen = True, [*seen, *notes]
    measured, expected = "; ".join(seen), f"{label.count} {' '.join((label.device, *label.model))}"
    return Comparison(not wrong, N_(f"measured {measured}, expected {expected}"))


def usable_cards(device: str, detection: Detection) -> UsableCards:
    """How many cards of "xpu" or "gpu" this process can use, as far as driver and tool show it.

    A tool that is missing, as in a container, leaves the device nodes; nodes that are hidden leave the tool.
    """
    nodes, reading = _nodes(device, detection), _reading(device, detection)
    opened = sum(node.usable for node in nodes)
    healthy = sum(card.state != "error" for card in reading.cards)
    counts = [count for count, shown in ((opened, nodes), (healthy, reading.cards)) if shown]
    return UsableCards(min(counts, default=0), tuple(_unusable(device, detection)))


def _unusable(device: str, detection: Detection) -> list[str]:
    """What makes cards that are there unusable, one phrase each."""
    closed = [node.path for node in _nodes(device, detection) if not node.usable]
    broken = [str(card.index) for card in _reading(device, detection).cards if card.state == "error"]
    notes = [N_(f"this user cannot open {', '.join(closed)}")] if closed else []
    return [*notes, N_(f"in state error: {', '.join(broken)}")] if broken else notes


def _nodes(device: str, detection: Detection) -> tuple[DeviceNode, ...]:
    return detection.nodes if device == "xpu" else detection.nvidia_nodes


def _reading(device: str, detection: Detection) -> Reading:
    return detection.xpu_smi if device == "xpu" else detection.nvidia_smi


def _words(card: Card) -> tuple[str, ...]:
    """ "P800 OAM" as ("p800", "oam"). A vendor's name says nothing, so it is left out."""
    return tuple(word for word in _WORD.findall(card.model.lower()) if word != "nvidia")


def _models(cards: tuple[Card, ...] | list[Card]) -> set[str]:
    return {card.model for card in cards}
