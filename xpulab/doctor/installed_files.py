"""Compares the files of an installed distribution with the list that its wheel came with (RECORD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xpulab.doctor.distributions import distribution
from xpulab.messages import N_


@dataclass(frozen=True)
class DamagedFile:
    """A file that is not there, or has another size than in the wheel.

    path: relative to site-packages
    wanted_bytes, found_bytes: sizes; found_bytes is None when the file is missing
    """

    path: str
    wanted_bytes: int
    found_bytes: int | None

    def __str__(self) -> str:
        if self.found_bytes is None:
            return N_(f"{self.path} is missing")
        return N_(f"{self.path} has {self.found_bytes} bytes, not {self.wanted_bytes}")


def damaged_files(name: str, search_path: Sequence[str] | None = None) -> tuple[DamagedFile, ...]:
    """The files of a distribution that are missing or have another size, the libraries first.

    search_path: folders in which the distribution is looked up; None is sys.path
    Empty when it is not installed or has no list. Compiled Python files are left out: Python writes them again.
    """
    found = distribution(name, search_path)
    damaged = []
    for file in (found.files or ()) if found else ():
        if file.size is None or file.suffix == ".pyc" or ".." in file.parts:  # programs, which pip writes itself
            continue
        try:
            size: int | None = Path(str(file.locate())).stat().st_size
        except OSError:
            size = None
        if size != file.size:
            damaged.append(DamagedFile(str(file), file.size, size))
    return tuple(sorted(damaged, key=lambda file: (".so" not in file.path, file.path)))
