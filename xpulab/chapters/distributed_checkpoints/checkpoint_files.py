"""Damages the files of a sharded checkpoint of two ranks, as crashes and disks do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

SECOND = "1_0.distcp"
"""The file that rank 1 wrote."""


def damages(holding: bytes) -> dict[str, Callable[[Path], None]]:
    """By name, what damages the checkpoint in a folder.

    holding: bytes of a tensor that the file of rank 1 contains; one of their bits is changed.
    """

    def flip(path: Path) -> None:
        data = bytearray((path / SECOND).read_bytes())
        data[data.index(holding) + 2] ^= 64  # a high bit of the mantissa of a float32
        (path / SECOND).write_bytes(data)

    return {
        "part missing": lambda path: (path / SECOND).unlink(),
        "bit flipped": flip,
        "part short": lambda path: os.truncate(path / SECOND, (path / SECOND).stat().st_size // 2),
    }


def outcomes(of_ranks: Iterable[str]) -> list[str]:
    """What each rank found, "right" or "wrong"; "an error" for any other text."""
    return [each if each in ("right", "wrong") else "an error" for each in of_ranks]
