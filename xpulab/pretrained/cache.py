"""The folder in the user's cache that holds prepared models. What is in it is complete: it is built beside and renamed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xpulab.errors import InputError


def root() -> Path:
    """The folder of prepared models: $XPULAB_MODELS, else $XDG_CACHE_HOME/xpulab/models, by default ~/.cache/xpulab/models."""
    if own := os.environ.get("XPULAB_MODELS"):
        return Path(own)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "xpulab" / "models"


FORMAT = 1
"""Part of the names of the folders; counted up when they are no longer what the suite would write."""


def folder_of_release(name: str) -> Path:
    """Where the prepared model of a release is, or will be."""
    return root() / f"{name}-{FORMAT}"


@contextmanager
def built(target: Path) -> Iterator[Path | None]:
    """Yield an empty folder; when the block ends without an error it becomes `target`, else nothing is left of it.

    One process at a time builds a target; None is yielded where another one has built it meanwhile.
    Raises InputError when the cache cannot be written.
    """
    folder = target.with_name(f".{target.name}.unfinished")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f".{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
            if target.is_dir():
                yield None
                return
            try:
                folder.mkdir()
                yield folder
                folder.replace(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error}; set XDG_CACHE_HOME to a folder with room") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
