"""Python objects from rank to rank as a grid: lists of objects of other lengths, in groups, to and from each of their ranks.

    check.grid("collectives.objects", object_cases.objects(here.name), object_cases.run(here.name), add_row, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import paddle.distributed as dist
from paddle.distributed.communication import stream

from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, Rule
from xpulab.records.refusals import refusal

RANKS = 4
GROUPS: dict[str, list[int]] = {"all": [], "ranks 1 3": [1, 3], "ranks 3 1 2": [3, 1, 2]}
TO_ALL = "sent to all ranks of the job"

SIZES: dict[str, Callable[[int], Any]] = {
    "of one length": lambda number: {"number": number},
    "of other lengths": lambda number: [number] * (1 + 5 * (number % 3)),
    "None and 100,000 bytes": lambda number: bytes([number]) * 100_000 if number % 2 else None,
}
"""By label an object of this number: from ten times the rank on."""


def objects(device: str) -> Grid:
    """The grid. count: of the objects of a list. root: the place of the sender in its group. peer: how it is named."""
    rules: dict[str, Rule] = {}
    if lacks := refusal(device, "send", form="in a group of three ranks"):
        rules[lacks.format_reason()] = lambda kind, group: kind == "send_object_list" and len(group) != 2
    return Grid(
        {
            "kind": ("all_gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list"),
            "sizes": SIZES,
            "group": GROUPS,
            "count": (1, 3),
            "root": (0, 1),
            "peer": ("rank", "place in the group"),
        },
        {
            "one object of each rank": lambda kind, count: kind in ("all_gather_object", "scatter_object_list") and count > 1,
            "all gather from all": lambda kind, root: kind == "all_gather_object" and root > 0,
            "only messages name a place": lambda kind, peer: kind != "send_object_list" and peer != "rank",
            **rules,
        },
        each="kind",
    )


def run(device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: what each member has in the end. In the control each has the next one's."""
    return on_ranks(_received, RANKS, device, _compared, _members, _make_groups)


def _members(case: Case) -> list[int]:
    return sorted(case.group or range(RANKS))


def _given(case: Case, rank: int, count: int) -> list[Any]:
    return [SIZES[case.labels["sizes"]](10 * rank + number) for number in range(count)]


_groups: dict[str, Any] = {}


def _make_groups(cases: Sequence[Case]) -> None:
    for label, members in GROUPS.items():
        _groups[label] = dist.new_group(members) if members else None
        dist.barrier()


def _received(case: Case) -> list[Any]:
    """On a rank: the objects that it has at the end."""
    rank, members, group = dist.get_rank(), _members(case), _groups[case.labels["group"]]
    root, next_one, held = members[case.root], members[case.root - 1], [None] * case.count
    if case.kind == "all_gather_object":
        held = []
        dist.all_gather_object(held, _given(case, rank, 1)[0], group)
    elif case.kind == "broadcast_object_list":
        held = _given(case, rank, case.count) if rank == root else held
        dist.broadcast_object_list(held, root, group)
    elif case.kind == "scatter_object_list":
        held, asked, real = [], [], stream.broadcast
        with mock.patch.object(stream, "broadcast", lambda x, src, of=None: (asked.append(of), real(x, src, group))):
            dist.scatter_object_list(held, _given(case, root, len(members)) if rank == root else None, root, group)
        held += [TO_ALL] * (asked[0] is not group)
    elif rank in (root, next_one):
        peer, name = (next_one, "dst") if rank == root else (root, "src")
        places = {f"{name}_in_group": members.index(peer)} if case.peer == "place in the group" else {name: peer}
        if rank == root:
            dist.send_object_list(_given(case, root, case.count), **places, group=group)
        else:
            dist.recv_object_list(held, **places, group=group)
    return held


def _compared(case: Case, found: Sequence[Any]) -> Compared:
    members = _members(case)
    root, next_one = members[case.root], members[case.root - 1]
    sent = _given(case, root, max(case.count, len(members)))
    right = {
        "all_gather_object": [[_given(case, rank, 1)[0] for rank in members]] * len(members),
        "broadcast_object_list": [sent[: case.count]] * len(members),
        "scatter_object_list": [[each] for each in sent[: len(members)]],
        "send_object_list": [sent[: case.count] if rank == next_one else [None] * case.count for rank in members],
    }[case.kind]
    texts, wrong = [str(each) for each in right], [str([*each[1:], "another"]) for each in right]
    return Compared({"ranks": [str(each) for each in found]}, {"ranks": texts}, wrong={"ranks": wrong})
