"""Cards by their serial numbers: which occurs twice, and which card a measurement is of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from xpulab.fleet.runs import Run

_NO_SERIAL = frozenset({"", "0", "n/a", "[n/a]", "none", "unknown"})
"""What tools print for a card without a serial number."""

_SHOWN = 3
_NAMED = re.compile(r"\bcard (\d+)\b")


def repeated(runs: Sequence[Run]) -> Iterator[tuple[Run, int, str, str]]:
    """Run, index and serial number of each card whose number another card has too, and those others as text.

    Several GPUs of one NVIDIA board share its number, so on one node they are not counted. A PCI address is unique on one
    machine only, so it is no identity.
    """
    owners: dict[str, list[tuple[Run, int]]] = defaultdict(list)
    for run in runs:
        for card in run.result["card_facts"]:
            if str(card["serial"] or "").lower() not in _NO_SERIAL:
                owners[str(card["serial"])].append((run, card["index"]))
    for serial, places in owners.items():
        for run, index in places if len(places) > 1 else ():
            others = (f"card {number} of {other.name}" for other, number in places if not _is_same(run, index, other, number))
            if named := list(islice(others, _SHOWN + 1)):
                more = " and more" if len(named) > _SHOWN else ""
                yield run, index, serial, ", ".join(named[:_SHOWN]) + more


def _is_same(run: Run, index: int, other: Run, number: int) -> bool:
    """Whether two cards may have one serial number: a card and itself, or GPUs of one machine."""
    return other is run and (number == index or run.result["device"] == "gpu")


def format_card(run: Run, case: str) -> str:
    """Number and serial number of the card that a case names, or of the only one; "" when they are not known."""
    cards, named = run.result["card_facts"], _NAMED.search(case)
    chosen = [card for card in cards if named and card["index"] == int(named[1])] or (cards if len(cards) == 1 else [])
    return "".join(f" (card {card['index']}, serial number {card['serial']})" for card in chosen if card["serial"])
