"""The installed distributions, by their metadata: nothing is imported. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions

from xpulab.devices import WHEELS


def installed_frameworks(search_path: Sequence[str] | None = None) -> dict[str, str]:
    """The installed ones of paddlepaddle, paddlepaddle-xpu and paddlepaddle-gpu, with their versions."""
    return installed_versions(WHEELS, search_path)


def installed_versions(names: Iterable[str], search_path: Sequence[str] | None = None) -> dict[str, str]:
    """The installed ones of these distributions, in their order, with their versions."""
    found = {name: installed_version(name, search_path) for name in names}
    return {name: version for name, version in found.items() if version is not None}


def installed_version(name: str, search_path: Sequence[str] | None = None) -> str | None:
    """The version of a distribution by its metadata, without importing it; None when it is not installed."""
    found = distribution(name, search_path)
    return found.version if found else None


def distribution(name: str, search_path: Sequence[str] | None = None) -> Distribution | None:
    """The first distribution of this name. search_path: the folders to look in; None is sys.path."""
    return next(iter(distributions(name=name, path=list(sys.path if search_path is None else search_path))), None)
