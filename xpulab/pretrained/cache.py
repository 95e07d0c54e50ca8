"""The folder in the user's cache that holds prepared models. What is in it is complete: it is built beside and renamed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from xpulab import files


def root() -> Path:
    """The folder of prepared models: $XPULAB_MODELS, else $XDG_CACHE_HOME/xpulab/models, by default ~/.cache/xpulab/models."""
    return files.cache_folder("XPULAB_MODELS", "models")


FORMAT = 1
"""Part of the names of the folders; counted up when they are no longer what the suite would write."""


def folder_of_release(name: str) -> Path:
    """Where the prepared model of a release is, or will be."""
    return root() / f"{name}-{FORMAT}"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
