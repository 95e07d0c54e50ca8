"""What cards must reach, by their model: data/hardware.yaml, from data sheets, and before it a site's own file.

Nothing in data/hardware.yaml was measured. A site measures its healthy cards and writes a file of the same form; SITE names it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from xpulab import files

SITE = "XPULAB_HARDWARE"
"""The environment variable that names a site's own file, whose entries count before those of data/hardware.yaml."""

LINKS = {"PCIe 3.0 x16": 15.75, "PCIe 4.0 x16": 31.5, "PCIe 5.0 x16": 63.0}
"""By link the bytes in one direction, GB/s: 8, 16 or 32 GT/s in 16 lanes, of 130 bits 128 are data (PCI Express base
specification)."""


@dataclass(frozen=True)
class Sheet:
    """The data sheet of one card. What no public document gives is empty or None.

    card: its name, for people. models: as the vendor's tool prints them. source: the document. note: what is left out.
    tflops: by type the peak rate of matrix products, TFLOP/s; "tf32" is for products of float32 in TF32.
    memory_gb_per_s: peak rate of the card's memory, GB/s. memory_gib: its size, GiB. link: to the host, a key of LINKS.
    card_to_card_gb_per_s: peak rate of copies from one card to another, in one direction, GB/s.
    least: the share of its numbers below which a card is red; None for a data sheet, whose peaks no program reaches.
    """

    card: str
    models: tuple[str, ...]
    source: str
    tflops: dict[str, float] = field(default_factory=dict)
    memory_gb_per_s: float | None = None
    memory_gib: float | None = None
    link: str | None = None
    card_to_card_gb_per_s: float | None = None
    least: float | None = None
    note: str = ""

    @property
    def link_gb_per_s(self) -> float | None:
        """The peak rate of copies between host and card in one direction, GB/s."""
        return LINKS[self.link] if self.link else None


def load(path: Path | None = None) -> tuple[Sheet, ...]:
    """The data sheets of the file; data/hardware.yaml when no path is given.

    Raises InputError with file and line when it does not fit data/schema/hardware.schema.json.
    """
    entries = files.load_yaml(path or files.data("hardware.yaml"), files.data("schema", "hardware.schema.json"))
    return tuple(Sheet(**{**entry, "models": tuple(entry["models"])}) for entry in entries)


def sheets() -> tuple[Sheet, ...]:
    """Those of the site's file, then those of data/hardware.yaml. Raises InputError as `load` does."""
    return (*(load(Path(os.environ[SITE])) if os.environ.get(SITE) else ()), *load())
