"""The installed distributions, and the environments beside .venv. By metadata: nothing is imported. Standard library only.

A chapter that cannot share an environment with PaddleNLP names its own in its metadata, `environment`. Such a chapter is not
part of a run that names no notebook: `env/validate.sh NUMBER` makes its environment and runs it there.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import distributions

from xpulab.devices import WHEELS

SUCCESSOR = "paddleformers"
"""The package that took over PaddleNLP's training of language models. After it is renamed again, change it here."""

PACKAGES = {"formers": SUCCESSOR}
"""By the name of an environment the package that only this one has; env/requirements/NAME.txt pins it."""


def present() -> str:
    """The environment that this process runs in; empty for .venv, and for any other without one of these packages."""
    return next((name for name, package in PACKAGES.items() if installed_version(package)), "")


def installed_frameworks() -> dict[str, str]:
    """The installed ones of paddlepaddle, paddlepaddle-xpu and paddlepaddle-gpu, with their versions."""
    return installed_versions(WHEELS)


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """The installed ones of these distributions, in their order, with their versions."""
    found = {name: installed_version(name) for name in names}
    return {name: version for name, version in found.items() if version is not None}


def installed_version(package: str) -> str | None:
    """The version of a package; "paddle" is the installed wheel of Paddle. None where it is not installed."""
    names = WHEELS if package == "paddle" else (package,)
    return next((found.version for name in names for found in distributions(name=name)), None)
