"""The folder in the user's cache that holds prepared models. What is in it is complete: it is built beside and renamed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xpulab.errors import InputError

_CHUNK = 1 << 20
_UNFINISHED = ".unfinished"


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
def built(target: Path) -> Iterator[Path]:
    """Yield an empty folder; when the block ends without an error it becomes `target`, else nothing is left of it.

    The folder of `target` must be there, and no other process build the same one: what a killed one left is removed.
    Raises InputError when there is no room.
    """
    for left in target.parent.glob(f".{target.name}.*{_UNFINISHED}"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_UNFINISHED, dir=target.parent))
    try:
        yield folder
        if target.exists():  # another process was faster; its folder is as good
            return
        os.replace(folder, target)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written: {error.strerror or error}; free space, or set XDG_CACHE_HOME"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Wait until no other process prepares the model of this name. Raises InputError when the cache cannot be written."""
    path = root() / f".{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise InputError(
            f"{path.parent}: cannot be written: {error.strerror}; set XDG_CACHE_HOME to a folder with room"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
