"""How ranks find Paddle's store and each other, without the waits of Paddle 3.3.1 and without its race between groups.

- A rank that looks for rank 0 before it listens sleeps for three seconds (tcp_utils.cc, "Retry to connect to ... while the
  server is not yet listening"). Here it waits just until rank 0 listens.
- A request to the store is several small writes, and tcp_connect leaves Nagle's algorithm on: the second write waits until the
  store has acknowledged the first, which the kernel delays by 40 ms. A gloo group of four ranks needs some 20 requests: 0.8 s.
  With TCP_NODELAY, which tcp_accept sets at the other end, about 0.1 s on a busy machine.
- Each gloo group writes its ranks' addresses to the store twice, the second time to keys that all groups share
  (process_group_gloo.cc: connectFullMesh with a store that has no prefix). So a rank may read the address of an earlier group:
  then it hangs, or raises "sizeof(impl_) == bytes.size()". The 40 ms made that rare. Here each group has a store of its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xpulab.ranks import environment

_LIMIT_SECONDS = 30.0
"""After this long Paddle tries by itself, and raises its own error."""
_LOOK_SECONDS = 0.01
_LISTENING = "0A"


def prepare() -> None:
    """From here on the store is created when rank 0 listens, is fast, and is not shared by gloo groups.

    Call it in every rank, after importing Paddle and before init_parallel_env.
    """
    from paddle.base import core
    from paddle.distributed import collective

    create = core.create_or_get_global_tcp_store
    core.create_or_get_global_tcp_store = lambda: when_rank_0_listens(
        create, int(os.environ["PADDLE_MASTER"].rpartition(":")[2])
    )
    collective._new_process_group_impl = _in_a_store_of_its_own(collective._new_process_group_impl)


def when_rank_0_listens(create: Callable[[], Any], port: int) -> Any:
    """The store that create() returns, whose server rank 0 starts at this port."""
    if int(os.environ["PADDLE_TRAINER_ID"]) > 0:
        _wait(port)
    store = create()
    send_at_once(port)
    return store


def _in_a_store_of_its_own(make: Callable[..., Any]) -> Callable[..., Any]:
    """What makes the groups of dist.new_group; that of init_parallel_env is made otherwise, and is the first in its store."""

    def make_group(backend: str, store: Any, rank: int, ranks: int, *rest: Any, **named: Any) -> Any:
        if backend == "gloo" and "group_id" in named:
            store = _store_of_group(store, rank, named["group_id"])
        return make(backend, store, rank, ranks, *rest, **named)

    return make_group


def _store_of_group(store: Any, rank: int, group: int) -> Any:
    """A store that rank 0 of this group serves, on a port that it writes to the job's store. It ends with the group."""
    from paddle.base import core

    key = f"port of the store of group {group}"
    if rank == 0:
        with environment.held_ports(1) as (port,):
            own = core.TCPStore(environment.HOST, port, True, 0)
        store.set(key, str(port))
    else:
        port = int(store.get(key))
        own = core.TCPStore(environment.HOST, port, False, 0)
    send_at_once(port)
    return own


def send_at_once(port: int) -> None:
    """Set TCP_NODELAY on this process's connections to this port."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # not connected, or closed meanwhile
            if os.readlink(entry).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                    if connection.family == socket.AF_INET and connection.getpeername()[1] == port:
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


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
