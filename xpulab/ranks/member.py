"""What runs in a rank of a team: one call after another, each in a process that is as new (reset.State).

What C++ keeps for the life of a process, the store of the job and the communicators, is used again: a group of the same ranks
gets the same communicator in each call, and a number of its own, by which Paddle finds it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import zlib
from typing import Any

from xpulab.ranks import environment, inside, rendezvous
from xpulab.ranks.reset import State

_FIRST_GROUP = 1 << 20
"""Above the numbers that Paddle itself counts."""


def main(address: str) -> None:
    """Be a rank of the team that listens at `address` until its last call, or until one leaves what cannot be undone."""
    member = _Member()
    while True:
        job = inside.main(address, member.prepare, member.begin)
        if job.is_last or not member.is_reset(job):
            return
        inside.stays()


class _Member:
    def __init__(self) -> None:
        self._state: State | None = None
        self._store_of_process: Any = None
        self._groups: dict[tuple[str, int], Any] = {}

    def prepare(self, job: inside.Job) -> None:
        self._job, self._store = job, None
        if self._state is not None:
            _forget_output()
            inside.select_card(job.device, job.cards)
            return
        for name in () if job.is_last else job.modules:  # what a function imports first it could have changed before it is kept
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        inside.prepare_rank(job)
        if not job.is_last:
            self._keep_groups(job.cards)
            self._state = State()

    def begin(self) -> None:
        if self._state is not None:
            self._state.extend()
            _forget_output()

    def is_reset(self, job: inside.Job) -> bool:
        """Reset the process; whether the next call may use it."""
        self._store = None
        return self._state is not None and self._state.restore(job.device)

    def _keep_groups(self, cards: int) -> None:
        """Give each call a store of its own, and groups the communicators of earlier calls.

        Paddle 3.3.1 has one store for a process, and keeps a communicator under the number of its group (store_utils.cc,
        CreateOrGetGlobalTCPStore; comm_context_manager.cc: XCCL refuses a second one, NCCL and BKCL take the first for it).
        """
        import paddle.distributed as dist
        from paddle.base import core
        from paddle.distributed import parallel

        collective: Any = dist.collective
        make, new_group = collective._new_process_group_impl, dist.new_group
        collective.xpulab_groups_of_call = made = dict[str, int]()  # an attribute of a module, so it is reset
        if cards > 1:
            self._store_of_process = core.create_or_get_global_tcp_store()  # all ranks meet here

        def make_or_keep(backend: str, store: Any, *rest: Any, group_id: int = 0, **named: Any) -> Any:
            key = backend, group_id
            if key not in self._groups:
                self._groups[key] = make(backend, self._store_of_process, *rest, group_id=group_id, **named)
            return self._groups[key]

        def new_numbered_group(ranks: list[int] | None = None, *rest: Any, **named: Any) -> Any:
            group = f"{sorted(ranks) if ranks else ranks} {rest} {named}"
            made[group] = made.get(group, 0) + 1
            collective._custom_gid = _FIRST_GROUP + zlib.crc32(f"{group} {made[group]}".encode()) % _FIRST_GROUP
            try:
                return new_group(ranks, *rest, **named)
            finally:
                collective._custom_gid = None

        core.create_or_get_global_tcp_store = self._store_of_call
        collective._new_process_group_impl = parallel._new_process_group_impl = make_or_keep
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("new_group") is new_group:
                vars(module)["new_group"] = new_numbered_group

    def _store_of_call(self) -> Any:
        from paddle.base import core

        if self._store is None:
            port, is_first = self._job.store_port, os.environ["PADDLE_TRAINER_ID"] == "0"
            make = functools.partial(core.TCPStore, environment.HOST, port, is_first, self._job.cards)
            self._store = rendezvous.when_rank_0_listens(make, port)
        return self._store


def _forget_output() -> None:
    """What a rank prints is that of one call, without what its imports print."""
    sys.stdout.flush()
    os.ftruncate(sys.stdout.fileno(), 0)
    os.lseek(sys.stdout.fileno(), 0, os.SEEK_SET)
