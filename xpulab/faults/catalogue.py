"""The catalogue of faults: each breaks one thing that training relies on, and names the checks that must detect it.

The faults of a chapter are in its room, xpulab.chapters.NAME.faults; those of notebooks/release/NAME.ipynb in
xpulab.release.NAME.faults.
xpulab.faults.selftest runs the chapter's sections with each of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

from xpulab import files
from xpulab.chapters.shared.fault import Fault


def faults_in(module: ModuleType) -> tuple[Fault, ...]:
    """The faults that a module defines, in the order of its source."""
    return tuple(value for value in vars(module).values() if isinstance(value, Fault))


def modules() -> Iterator[ModuleType]:
    """Those that hold faults, in the order of the notebooks; a notebook without one raises ModuleNotFoundError."""
    for notebook in sorted(files.NOTEBOOKS.glob("*.ipynb")):
        yield importlib.import_module(f"xpulab.chapters.{notebook.stem.partition('_')[2]}.faults")
    for notebook in files.release_notebooks():
        yield importlib.import_module(f"xpulab.release.{notebook.stem}.faults")


CATALOGUE: tuple[Fault, ...] = tuple(fault for module in modules() for fault in faults_in(module))
"""All faults, in the order of the notebooks."""
