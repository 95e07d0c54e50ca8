"""Damages the files of a sharded checkpoint of two ranks, as crashes, disks and people do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

DESCRIPTION, FIRST, SECOND = "0.metadata", "0_0.distcp", "1_0.distcp"
"""The files of dist.save_state_dict: the list of all slices, and what rank 0 and rank 1 wrote."""


def damages(holding: bytes, other: dict[str, Any]) -> dict[str, Callable[[Path], None]]:
    """By name, what damages the checkpoint in a folder.

    holding: bytes of a tensor that the file of rank 1 contains; one of their bits is changed.
    other: tensors of another size, which replace the contents of that file.
    """
    import paddle

    return {
        "part missing": lambda path: (path / SECOND).unlink(),
        "description missing": lambda path: (path / DESCRIPTION).unlink(),
        "description short": lambda path: shorten(path / DESCRIPTION),
        "bit flipped": lambda path: flip_a_bit(path / SECOND, holding),
        "parts exchanged": lambda path: exchange(path / FIRST, path / SECOND),
        "part of another size": lambda path: paddle.save(other, str(path / SECOND)),
        "part short": lambda path: shorten(path / SECOND),
    }


def flip_a_bit(file: Path, holding: bytes) -> None:
    """Change one bit of the third of these bytes, a high bit of the mantissa of a float32."""
    data = bytearray(file.read_bytes())
    data[data.index(holding) + 2] ^= 64
    file.write_bytes(data)


def exchange(one: Path, other: Path) -> None:
    """Exchange the contents of two files."""
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def shorten(file: Path) -> None:
    """Keep the first half of a file, as a full disk or a crash does."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
