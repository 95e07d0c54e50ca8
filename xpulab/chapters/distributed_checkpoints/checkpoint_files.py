"""Damages the files of a sharded checkpoint of two ranks, as crashes and disks do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

SECOND = "1_0.distcp"
"""The file that rank 1 wrote."""


def damages(holding: bytes) -> dict[str, Callable[[Path], None]]:
    """By name, what damages the checkpoint in a folder.

    holding: bytes of a tensor that the file of rank 1 contains; one of their bits is changed.
    """
    return {
        "part missing": lambda path: (path / SECOND).unlink(),
        "bit flipped": lambda path: flip_a_bit(path / SECOND, holding),
        "part short": lambda path: shorten(path / SECOND),
    }


def outcomes(of_ranks: Iterable[str]) -> list[str]:
    """What each rank found, "right" or "wrong"; "an error" for any other text."""
    return [each if each in ("right", "wrong") else "an error" for each in of_ranks]


def flip_a_bit(file: Path, holding: bytes) -> None:
    """Change one bit of the third of these bytes, a high bit of the mantissa of a float32."""
    data = bytearray(file.read_bytes())
    data[data.index(holding) + 2] ^= 64
    file.write_bytes(data)


def shorten(file: Path) -> None:
    """Keep the first half of a file, as a full disk or a crash does."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
