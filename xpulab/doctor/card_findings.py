"""What driver and vendor's tool say of the cards, as findings of the doctor and of the look at a host.

Rules as documented by the vendors; not run on a card.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from xpulab.doctor import system
from xpulab.doctor.cards import Card, Reading, format_card_count
from xpulab.doctor.detect import Detection
from xpulab.doctor.finding import Finding, known_finding
from xpulab.messages import N_

HEALTHY_STATES = ("RUNNING", "NORMAL")
_SHOWN_CHARACTERS = 200


def card_state(detection: Detection, root: Path) -> Iterator[Finding]:
    """From /proc/xpu/devN/state and what the vendor says; no finding when neither shows one."""
    shown = (*detection.xpu_smi.cards, *detection.nvml.cards)
    states = system.card_states(root) if detection.nodes else {}
    states = {**{card.index: card.state.upper() for card in shown if card.state}, **states}
    unhealthy = {index: state for index, state in states.items() if state not in HEALTHY_STATES}
    if unhealthy:
        seen = ", ".join(
            N_("card {index} is in state {state}", index=index, state=state or "?")
            for index, state in sorted(unhealthy.items())
        )
        is_bad = any(
            re.search("ERROR|RESET", state) for state in unhealthy.values()
        )  # another word may be that of a new driver
        yield known_finding(
            "card-error", "wrong" if is_bad else "unknown", seen, "card-error" if is_bad else "vendor-tool-unread"
        )
    elif states:
        seen = N_(
            "{states} in state {value}", states=format_card_count(len(states)), value=" or ".join(sorted({*states.values()}))
        )
        yield Finding("card-error", "ok", seen)


def vendor_tool(reading: Reading, in_container: bool) -> Finding:
    """What the vendor's tool did. A warning where it is missing, as in containers whose cards work.

    Only what can be read may be wrong: the errors of NVIDIA's library have names. That another tool fails, hangs or is not
    understood says nothing of the cards, which compute or do not.
    """
    id = reading.tool.lower().replace("_", "-")
    missing = "nvml-missing" if id == "nvml" else "xpu-smi-missing"
    if reading.unread:
        lines = len(reading.unread)
        seen = N_(
            "{detail}; {lines} lines of it are not understood, the first: {unread}",
            detail=reading.detail,
            lines=lines,
            unread=reading.unread[0][:_SHOWN_CHARACTERS],
        )
        return known_finding(id, "unknown", seen, "vendor-tool-unread")
    if reading.outcome == "ok":
        return Finding(id, "ok", reading.detail)
    if reading.outcome == "missing":
        seen = N_("{detail} in this container", detail=reading.detail) if in_container else reading.detail
        return known_finding(id, "warn", seen, missing)
    if reading.outcome == "foreign":
        return known_finding(id, "warn", reading.detail, "xpu-smi-foreign")
    named = (reading.tool, reading.outcome) == ("NVML", "failed")
    return known_finding(id, "wrong" if named else "unknown", reading.detail, "vendor-tool-fails")


def health(cards: Sequence[Card]) -> Iterator[Finding]:
    """Memory and temperature, where the vendor shows them. Errors since the driver was loaded are wrong, older ones are not."""

    def listed(field: str) -> str:
        counts = {card.index: getattr(card, field) for card in cards}
        return ", ".join(N_("card {index}: {count}", index=index, count=count) for index, count in counts.items() if count)

    if now := listed("uncorrectable_errors"):
        seen = N_("uncorrectable errors of memory since the driver was loaded: {now}", now=now)
        yield known_finding("memory", "wrong", seen, "memory")
    elif old := "; ".join(filter(None, (listed("uncorrectable_ever"), listed("retired_pages")))):
        seen = N_("earlier uncorrectable errors of memory, then pages that are no longer used: {old}", old=old)
        yield known_finding("memory", "warn", seen, "memory-retired")
    elif counted := sum(card.uncorrectable_errors is not None for card in cards):
        yield Finding("memory", "ok", N_("no uncorrectable errors of memory on {cards}", cards=format_card_count(counted)))
    if hot := ", ".join(f"{card.index} ({card.temperature_c or 0:.0f} C)" for card in cards if card.is_throttled):
        yield known_finding("temperature", "warn", N_("slowed down by their temperature: cards {hot}", hot=hot), "temperature")
