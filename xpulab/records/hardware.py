"""What the data sheets of cards promise: data/hardware.yaml. These are the vendors' numbers, nothing of them was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from xpulab import files

LINKS = {"PCIe 3.0 x16": 15.75, "PCIe 4.0 x16": 31.5, "PCIe 5.0 x16": 63.0}
"""By link the bytes in one direction, GB/s: 8, 16 or 32 GT/s in 16 lanes, of 130 bits 128 are data (PCI Express base
specification)."""


@dataclass(frozen=True)
class Sheet:
    """The data sheet of one card. What no public document gives is empty or None.

    card: its name, for people. models: as the vendor's tool prints them. source: the document. note: what is left out.
    tflops: by type the peak rate of matrix products, TFLOP/s; "tf32" is for products of float32 in TF32.
    memory_gb_per_s: peak rate of the card's memory, GB/s. memory_gib: its size, GiB. link: a key of LINKS.
    """

    card: str
    models: tuple[str, ...]
    source: str
    tflops: dict[str, float] = field(default_factory=dict)
    memory_gb_per_s: float | None = None
    memory_gib: float | None = None
    link: str | None = None
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


def sheet_of(model: str) -> Sheet | None:
    """The data sheet of the card whose model the vendor's tool prints so; None when it is not listed."""
    return next((sheet for sheet in load() if model in sheet.models), None)
