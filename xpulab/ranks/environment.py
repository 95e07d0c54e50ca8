"""The environment variables that paddle.distributed.launch gives a rank. Standard library only.

Source: Paddle 3.3.1, distributed/launch/controllers/collective.py, context/args_envs.py and utils/process_context.py.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from xpulab.devices import SIMULATED

HOST = "127.0.0.1"

_OF_A_JOB = re.compile(
    "POD_(IP|NAME)|MASTER_(ADDR|PORT)|DISTRIBUTED_TRAINER_ENDPOINTS|FLAGS_FIXED_PORT|FLAGS_selected_[a-z]+s"
    "|PADDLE_(MASTER|DEVICES|NNODES|RUN_MODE|LOG_LEVEL|LOG_OVERWRITE|SORT_IP|NPROC_PER_NODE|JOB_ID|RANK|LOG_DIR|MAX_RESTART"
    "|ELASTIC_LEVEL|ELASTIC_TIMEOUT|SERVER_NUM|TRAINER_NUM|SERVERS_ENDPOINTS|TRAINERS_ENDPOINTS|GLOO_PORT|WITH_GLOO"
    "|START_PORT|IPS|AUTO_PARALLEL_CONFIG|AUTO_CLUSTER|LAUNCH_WITH_ARGS)"
    "|PADDLE_(GLOBAL_SIZE|LOCAL_SIZE|GLOBAL_RANK|LOCAL_RANK|CURRENT_ENDPOINT|TRAINER_ID|TRAINERS_NUM|RANK_IN_NODE"
    "|TRAINER_ENDPOINTS|DISTRI_BACKEND|XCCL_BACKEND|BACKUP_ENV_PATH)"
)
"""The variables that the launcher reads, and those that it gives to a rank."""
_PROXIES = ("http_proxy", "https_proxy")
_PORTS_A_RUN = 100
_FIRST_PORT, _LAST_PORT = 10_000, 32_000
"""Below the ports that Linux assigns by itself."""


def before_launch(notebook: Mapping[str, str]) -> dict[str, str]:
    """The notebook's variables without those of another job that it runs in: the launcher would take them for its own.

    One thread a rank: ranks share the cores. With libuv the store of Paddle 3.3.1 aborts rank 0 where another rank ends first.
    """
    kept = {name: value for name, value in notebook.items() if not _OF_A_JOB.fullmatch(name)}
    return {"FLAGS_tcp_store_using_libuv": "0", **kept, "OMP_NUM_THREADS": "1"}


def of_rank(base: Mapping[str, str], rank: int, ports: list[int], device: str, folder: Path) -> dict[str, str]:
    """A rank's variables, as the launcher makes them from those that it was started with (`base`).

    ports: of rank 0's store, then one a rank. device: cpu or sim. folder: where logs go.
    """
    endpoints = [f"{HOST}:{port}" for port in ports[1:]]
    ranks = str(len(endpoints))
    backend = {
        "cpu": {"PADDLE_DISTRI_BACKEND": "gloo"},
        SIMULATED: {
            "PADDLE_DISTRI_BACKEND": "xccl",
            "PADDLE_XCCL_BACKEND": SIMULATED,
            f"FLAGS_selected_{SIMULATED}s": str(rank),
        },
    }
    given = {f"{name}_original" if name in _PROXIES else name: value for name, value in base.items()} | {
        "POD_NAME": "xpulab",
        "PADDLE_MASTER": f"{HOST}:{ports[0]}",
        "PADDLE_GLOBAL_SIZE": ranks,
        "PADDLE_LOCAL_SIZE": ranks,
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_LOCAL_RANK": str(rank),
        "PADDLE_NNODES": "1",
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": ranks,
        "PADDLE_RANK_IN_NODE": str(rank),
        "PADDLE_AUTO_CLUSTER": "0",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        **backend[device],
        "PADDLE_LOG_DIR": str(folder),
    }
    backup = folder / f"backup_env.{rank}.json"
    backup.write_text(json.dumps(given))
    return {**given, "PADDLE_BACKUP_ENV_PATH": str(backup)}


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """`count` free ports of this host that no other process is given inside the block.

    They are bound with SO_REUSEADDR and do not listen, as Paddle's store binds its own: so it can take them, and a
    process that asks for any free port, or binds one without that option, cannot.
    """
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, 0))
            ports.append(holder.getsockname()[1])
        yield ports


def range_of_ports() -> str:
    """A range "first:last" for the launcher, another one for nearly every run; it looks for ports in it that are free."""
    first = random.SystemRandom().randrange(_FIRST_PORT, _LAST_PORT, _PORTS_A_RUN)
    return f"{first}:{first + _PORTS_A_RUN - 1}"
