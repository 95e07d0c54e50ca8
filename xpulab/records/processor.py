"""The processor time of a cell: from the kernel's reply to the executed notebook, in the metadata of both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from xpulab.records.record import METADATA_KEY

_NAME = "processor_seconds"


@dataclass(frozen=True)
class ProcessorSeconds:
    """Processor time in seconds, user and system, of all cores together.

    kernel: of the kernel's process, all its threads. ranks: of the workers that the kernel asked a fork server for and that
    have ended, killed ones included. children: of the other processes that it started and waited for.
    """

    kernel: float
    ranks: float
    children: float

    def __add__(self, other: ProcessorSeconds) -> ProcessorSeconds:
        return ProcessorSeconds(self.kernel + other.kernel, self.ranks + other.ranks, self.children + other.children)

    def __sub__(self, earlier: ProcessorSeconds) -> ProcessorSeconds:
        """What was used since an earlier reading."""
        return ProcessorSeconds(self.kernel - earlier.kernel, self.ranks - earlier.ranks, self.children - earlier.children)

    @property
    def all(self) -> float:
        """Of all these processes."""
        return self.kernel + self.ranks + self.children


def to_metadata(used: ProcessorSeconds) -> dict[str, Any]:
    """As the metadata of a reply, or of a cell, hold it; microseconds are kept."""
    return {METADATA_KEY: {_NAME: {name: round(seconds, 6) for name, seconds in asdict(used).items()}}}


def from_metadata(metadata: dict[str, Any]) -> ProcessorSeconds | None:
    """What the metadata of a reply or a cell hold; None when nothing was measured."""
    stored = metadata.get(METADATA_KEY, {}).get(_NAME)
    return None if stored is None else ProcessorSeconds(**stored)
