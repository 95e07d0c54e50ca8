"""Parses single values that several formats of xpu-smi share."""

from __future__ import annotations

import re

ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
"""Regular expression of a PCI address."""


def version_or_none(version: str) -> str | None:
    """A version as printed; None for N/A."""
    return None if version in ("", "N/A") else version


def parse_number(text: str | None) -> float | None:
    """The number at the start of a value, "46 C" or "75.00 W"; None for N/A and the like."""
    match = re.match(r"-?\d+(\.\d+)?", text or "")
    return float(match[0]) if match else None


def parse_whole_number(text: str | None) -> int | None:
    """Like parse_number(), without the fraction."""
    number = parse_number(text)
    return None if number is None else int(number)
