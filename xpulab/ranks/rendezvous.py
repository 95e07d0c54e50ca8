"""A rank that looks for rank 0 before it listens sleeps for three seconds; here it waits just until rank 0 listens.

Source: Paddle 3.3.1, tcp_utils.cc, "Retry to connect to ... while the server is not yet listening".
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_LIMIT_SECONDS = 30.0
"""After this long Paddle tries by itself, and raises its own error."""
_LOOK_SECONDS = 0.01
_LISTENING = "0A"


def wait_for_rank_0() -> None:
    """From here on Paddle's store is created when rank 0 listens. Call it in every other rank, after importing Paddle."""
    from paddle.base import core

    create = core.create_or_get_global_tcp_store

    def create_when_rank_0_listens() -> object:
        _wait(int(os.environ["PADDLE_MASTER"].rsplit(":", 1)[1]))
        return create()

    core.create_or_get_global_tcp_store = create_when_rank_0_listens


def _wait(port: int) -> None:
    end = time.monotonic() + _LIMIT_SECONDS
    while not listening(port) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)


def listening(port: int) -> bool:
    """Whether a process of this machine listens on this TCP port. A trial connection would count as a rank."""
    suffix = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        if any(fields[1].endswith(suffix) and fields[3] == _LISTENING for fields in map(str.split, lines)):
            return True
    return False
