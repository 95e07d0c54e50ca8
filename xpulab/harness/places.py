"""The places that a run writes to, looked at before it starts and when a notebook has ended, and a HOME that can be written."""

from __future__ import annotations

import os
import resource
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.pretrained import cache

SHARED_MEMORY = Path("/dev/shm")

_ROOM = 16 << 20
"""Bytes that must be free in each place: what the reports of all chapters take."""

_FILES, _THREADS, _MOST_FILES = 40, 16, 4096
"""What a run with one notebook at a time needs: with 64 files it is green, with 32 its kernel dies."""

_BELOW_HOME = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "PPNLP_HOME", "MPLCONFIGDIR", "IPYTHONDIR"),
    *("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"),
)
"""Variables that name folders for the files of libraries; without them these are below HOME."""


def lacking(*folders: Path) -> str:
    """The first of the folders where no file of _ROOM bytes can be written, and why; "" when all can be written."""
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:  # without a name: it is never left
                os.posix_fallocate(file.fileno(), 0, _ROOM)
        except OSError as error:
            return N_("{folder}: cannot be written: {strerror}", folder=folder, strerror=error.strerror)
    return ""


def require(*folders: Path) -> None:
    """Raise InputError for the first of the folders where nothing can be written."""
    if why := lacking(*folders):
        raise InputError(N_("{why}; a run needs {room} MiB there", why=why, room=_ROOM >> 20))


def require_limits() -> None:
    """From now on this process may open as many files as its user may allow it, up to _MOST_FILES.

    Raises OSError or RuntimeError where it may not open the files or start the threads of a run: ZeroMQ would abort it then.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MOST_FILES:
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    release = threading.Event()
    with ExitStack() as stack:
        stack.callback(release.set)
        for _ in range(_FILES):
            stack.callback(os.close, os.dup(0))
        for _ in range(_THREADS):
            threading.Thread(target=release.wait, daemon=True).start()


def use_home(instead: Path) -> None:
    """From now on, where HOME cannot be written, libraries of this process and of those it starts keep files in a new folder.

    Prepared models are still read where they are.
    """
    if not lacking(Path(os.path.expanduser("~"))):
        return
    with suppress(RuntimeError):  # nothing says where the home folder is
        if os.path.isdir(cache.root()):
            os.environ["XPULAB_MODELS"] = str(cache.root())
    for name in _BELOW_HOME:
        if name in os.environ and lacking(Path(os.environ[name])):
            del os.environ[name]
    instead.mkdir()
    os.environ["HOME"] = str(instead)
