"""Start serve.py as a reader does, wait until it listens, and end it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xpulab.child import Child


@contextmanager
def serving(folder: Path, seconds: float = 180.0) -> Iterator[str]:
    """The address of `python serve.py config.json` in a folder; the end of the block ends it.

    Raises RuntimeError with its last lines when it does not listen within so many seconds.
    """
    end, said = time.monotonic() + seconds, list[str]()
    command = [sys.executable, "-W", "ignore", "serve.py", "config.json"]
    with Child(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        for line in child.lines():
            said.append((line or b"").decode(errors="replace").strip())
            if said[-1].startswith("serving "):
                yield said[-1].split()[-1]
                return
            if time.monotonic() > end:
                break
        raise RuntimeError("the server does not listen: " + " | ".join(filter(None, said[-8:])))
