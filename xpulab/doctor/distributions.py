"""The installed distributions, by their metadata: nothing is imported. Standard library only."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence

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
    where = {} if search_path is None else {"path": list(search_path)}
    return next((found.version for found in importlib.metadata.distributions(name=name, **where)), None)
