"""Where a Python program is that hangs, from the stack that faulthandler wrote. Standard library only."""

from __future__ import annotations

import signal
import sysconfig

SHOW_STACK = signal.SIGUSR1
"""A process of ours that imports writes its stack to standard error when it gets this signal."""

_PYTHON = ('File "<', f'File "{sysconfig.get_path("stdlib")}/')


def stack_end(written: str) -> str:
    """The innermost line outside of Python's own library, as 'File "...", line 3 in name'; "" when there is no stack."""
    frames = [line.strip() for line in written.splitlines() if line.strip().startswith('File "')]
    outside = [frame for frame in frames if not frame.startswith(_PYTHON) or "site-packages" in frame]
    return next(iter(outside or frames), "")
