"""Ways to make a group of ranks, to find it again and to wait for its work, as a grid; and processes of dist.spawn.

of_groups = groups.grid(here.name)
check.grid("collectives.group-options", of_groups, groups.run(here.name), add_row, ...)
"""

from __future__ import annotations

import datetime
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any, cast
from unittest import mock

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.records.refusals import refusal

RANKS = 4
ALL = tuple(range(RANKS))
MEMBERS = {"ranks 1 3": (1, 3), "ranks 0 2": (0, 2), "ranks 2 3": (2, 3), "all": ALL}
AXES = {"ranks 1 3": "x", "ranks 0 2": "x", "ranks 2 3": "y"}
"""By label of some members the axis of the mesh of 2 x 2 ranks that has them."""

MADE = ("new_group", "with a timeout", "with its backend", "gloo", "axis of a mesh", "mesh")
FOUND, WAITED = ("itself", "by its id"), ("task", "dist.wait")
CALLS = ("all_reduce", "alltoall")
"""What adds in the group: the sum of all, or that of what alltoall brings."""


def grid(device: str) -> Grid:
    """The grid; what data/refusals.yaml declares is a rule."""
    rules: dict[str, Callable[..., bool]] = {
        "an axis has two ranks": lambda made, members: made == "axis of a mesh" and members == ALL,
        "gloo has neither a stream nor alltoall": lambda made, waited, call: (
            made == "gloo" and (waited == "dist.wait" or call == "alltoall")
        ),
        "alltoall brings several tensors": lambda waited, call: waited == "dist.wait" and call == "alltoall",
    }
    if lacks := refusal(device, "wait"):
        rules[lacks.format_reason()] = lambda waited: waited == "dist.wait"
    if lacks := refusal(device, "all_to_all"):
        rules[lacks.format_reason()] = lambda call: call == "alltoall"
    return Grid({"made": MADE, "members": MEMBERS, "found": FOUND, "waited": WAITED, "call": CALLS}, rules)


def run(device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: what each rank has after a sum in the group of a case, and what the group says."""
    return on_ranks(_held, RANKS, device, _compared, lambda _: ALL, _make_groups_of_axes)


def _make_groups_of_axes(_cases: Sequence[Case]) -> None:
    """On every rank all groups of both axes, each with an id of its own: a mesh takes the first group with its ranks."""
    for row in ([0, 2], [1, 3], [0, 1], [2, 3]):
        dist.new_group(row)


def _group(case: Case) -> Any:
    ranks = list(case.members)
    if case.made == "axis of a mesh":
        mesh = dist.ProcessMesh(shape=[2, 2], process_ids=list(ALL), dim_names=["x", "y"])
        return mesh.get_group(AXES[case.labels["members"]])
    given: dict[str, Any] = {}
    if case.made == "with a timeout":
        given["timeout"] = datetime.timedelta(seconds=90)
    elif case.made != "new_group":
        given["backend"] = "gloo" if case.made == "gloo" else dist.get_backend().lower()
    group = dist.new_group(ranks, **given)
    return dist.ProcessMesh(ranks, dim_names=["x"]).get_group("x") if case.made == "mesh" else group


def _number(rank: int) -> float:
    return 3.0**rank


def _held(case: Case) -> dict[str, Any]:
    rank, group = dist.get_rank(), _group(case)
    if case.found == "by its id":
        group = dist.get_group(group.id)
    x = paddle.to_tensor([_number(rank)], place=paddle.CPUPlace() if case.made == "gloo" else None)
    backend = "outside"
    if rank in group.ranks:
        gathered = [paddle.empty_like(x) for _ in group.ranks]
        if case.call == "all_reduce":
            task = dist.all_reduce(x, group=group, sync_op=False)
        else:
            task = dist.alltoall(gathered, [x] * group.nranks, group=group, sync_op=False)
        if case.waited == "task":
            task.wait()
        if case.call == "alltoall":
            x = paddle.add_n(gathered)
        backend = dist.get_backend(group)
    if case.waited == "dist.wait":
        dist.wait(x, group=group)
    doubled = (x * 2).numpy().astype("float64")  # an operator reads the result
    told = [*group.ranks, group.nranks, backend, group.get_group_rank(rank)]
    dist.barrier()
    return {"sum": doubled, "told": str(told), "backend": dist.get_backend()}


def _compared(case: Case, of_ranks: list[Any]) -> Compared:
    """The sums and what the group says on each rank; in the control the members have the sum of all ranks."""
    right: dict[str, Any] = {"sum": [], "told": []}
    for rank, each in enumerate(of_ranks):
        members = case.members
        if case.made == "axis of a mesh" and rank not in members:
            members = tuple(other for other in ALL if other not in members)
        is_member = rank in members
        right["sum"].append([2 * sum(map(_number, members)) if is_member else 2 * _number(rank)])
        backend = "GLOO" if case.made == "gloo" else each["backend"]
        told = [*members, len(members), backend if is_member else "outside", members.index(rank) if is_member else -1]
        right["told"].append(str(told))
    found = {name: [each[name] for each in of_ranks] for name in right}
    wrong = {**right, "sum": np.full([RANKS, 1], 2 * sum(map(_number, ALL)) + len(case.members) // RANKS)}
    return Compared(found, right, wrong=wrong)


ENDED = {
    "group of all ranks": "made []",
    "axes of a mesh": "made [[0, 2], [1, 3]], made [[0, 1], [2, 3]]",
    "a destroyed group by its id": "None, others True",
    "a destroyed group by its ranks": "made [[0, 1]]",
    "all destroyed": "others False",
}
"""By name what each rank must find; made: the groups that ProcessMesh.get_group makes there."""


def found_on_rank() -> dict[str, str]:
    """On a rank: by the names of ENDED what it finds, where only the group of all ranks is made."""
    dist.init_parallel_env()
    mesh, pair = dist.ProcessMesh([[0, 1], [2, 3]], dim_names=["x", "y"]), dist.ProcessMesh([0, 1], dim_names=["z"])
    found = {
        "group of all ranks": _made(dist.ProcessMesh(list(ALL), dim_names=["z"]), "z"),
        "axes of a mesh": f"{_made(mesh, 'x')}, {_made(mesh, 'y')}",
    }
    group = dist.new_group([0, 1])
    dist.barrier()
    dist.destroy_process_group(group)
    found["a destroyed group by its id"] = f"{dist.get_group(group.id)}, others {dist.is_initialized()}"
    found["a destroyed group by its ranks"] = _made(pair, "z")
    dist.barrier()
    dist.destroy_process_group()
    found["all destroyed"] = f"others {dist.is_initialized()}"
    return found


def _made(mesh: Any, axis: str) -> str:
    made: list[Any] = []
    with mock.patch.object(dist, "new_group", lambda ranks: made.append(sorted(ranks))):
        mesh.get_group(axis)
    return f"made {made}"


def spawned() -> list[str]:
    """What two processes of dist.spawn return, started with arguments, as daemons, without waiting for them."""
    options: Any = {"backend": "gloo"}
    context = dist.spawn(cast(Any, _in_process), args=("given",), nprocs=2, join=False, daemon=True, **options)
    is_daemon = all(process.daemon for process in context.processes)
    while not context.join():
        pass
    return [f"{queue.get()}, daemon {is_daemon}" for queue in context.return_queues]


def _in_process(word: str) -> str:
    dist.init_parallel_env()
    x = paddle.to_tensor([_number(dist.get_rank())])
    dist.all_reduce(x)
    return f"{word}, rank {dist.get_rank()}, sum {x.item():g}, daemon {multiprocessing.current_process().daemon}"
