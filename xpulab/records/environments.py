"""The environments beside .venv. A chapter that cannot share one with PaddleNLP names its own in its metadata, `environment`.

Such a chapter is not part of a run that names no notebook: `env/validate.sh NUMBER` makes its environment and runs it there.
"""

from __future__ import annotations

from importlib import metadata

from xpulab.devices import WHEELS

SUCCESSOR = "paddleformers"
"""The package that took over PaddleNLP's training of language models. After it is renamed again, change it here."""

PACKAGES = {"formers": SUCCESSOR}
"""By the name of an environment the package that only this one has; env/requirements/NAME.txt pins it."""


def present() -> str:
    """The environment that this process runs in; empty for .venv, and for any other without one of these packages."""
    return next((name for name, package in PACKAGES.items() if installed_version(package)), "")


def installed_version(package: str) -> str | None:
    """The version of a package; "paddle" is the installed wheel of Paddle. None where it is not installed."""
    names = WHEELS if package == "paddle" else (package,)
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
