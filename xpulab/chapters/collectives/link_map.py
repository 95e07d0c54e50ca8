"""What the links between pairs of cards carry: values and rates as matrices, and what the vendor's tool calls them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np

from xpulab.doctor.tool import run_tool

TOOLS = {"gpu": ("nvidia-smi", "topo", "-m"), "xpu": ("xpu-smi", "topo", "-m")}
"""What prints the matrix of links. That of the XPU was not tried: its documentation names the command, not its format."""

VISIBLE = {"gpu": ("CUDA_VISIBLE_DEVICES",), "xpu": ("XPULINK_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")}
"""The variables that choose cards, in the order in which Paddle's launcher reads them."""

_HEADER = re.compile(r"^\s+((?:[GX]PU\d+\s+)+)")
_ROW = re.compile(r"^([GX]PU)(\d+)\s+(.*)$")

Transfers = Mapping[tuple[int, int], tuple[bool, float]]
"""By (sender, receiver): whether every value was right, and the seconds of one transfer."""


def pairs_of(n: int) -> list[tuple[int, int]]:
    """All pairs of n ranks, (lower, higher)."""
    return list(combinations(range(n), 2))


def merged(found: Iterable[Transfers]) -> dict[tuple[int, int], tuple[bool, float]]:
    """What several ranks have seen of each transfer: right when it was right on all, and the longest time."""
    together: dict[tuple[int, int], tuple[bool, float]] = {}
    for of_rank in found:
        for link, (right, seconds) in of_rank.items():
            before = together.get(link, (True, 0.0))
            together[link] = (right and before[0], max(seconds, before[1]))
    return together


def rates(transfers: Transfers, size: int, n: int) -> np.ndarray:
    """GB/s of each link, [senders, receivers], from transfers of `size` bytes; NaN where nothing was sent or it was wrong."""
    found = np.full((n, n), np.nan)
    for link, (right, seconds) in transfers.items():
        if right:
            found[link] = size / seconds / 1e9
    return found


def link_names(device: str, n: int) -> dict[tuple[int, int], str]:
    """By (lower rank, higher rank): how the vendor's tool names the link, as "NV12" or "SYS". Empty where no tool tells it."""
    if device not in TOOLS:
        return {}
    return named_links(run_tool(TOOLS[device]).output, cards_of_ranks(device, n))


def cards_of_ranks(device: str, n: int) -> list[int]:
    """The number of each rank's card, which visible-devices variables change. As they count where these hold other names."""
    for name in VISIBLE[device]:
        numbers = os.environ.get(name, "").split(",")
        if all(each.strip().isdigit() for each in numbers) and len(numbers) >= n:
            return [int(each) for each in numbers[:n]]
    return list(range(n))


def named_links(text: str, cards: list[int]) -> dict[tuple[int, int], str]:
    """The links between these cards in the matrix of `topo -m`; the result counts places in `cards`."""
    columns: list[int] = []
    named: dict[tuple[int, int], str] = {}
    for line in text.splitlines():
        if header := _HEADER.match(line):
            columns = [int(number) for number in re.findall(r"PU(\d+)", header[1])]
        elif (row := _ROW.match(line)) and columns:
            named |= {(int(row[2]), column): name for column, name in zip(columns, row[3].split(), strict=False)}
    places = {card: place for place, card in enumerate(cards)}
    return {
        (places[a], places[b]): name
        for (a, b), name in named.items()
        if a in places and b in places and places[a] < places[b] and name != "X"
    }
