"""`xpulab fleet links`: do the nodes of a job of Slurm work together, and which smallest groups of them do not.

All nodes exchange a known tensor in one step of the job (`exchange`). The halves of a red group are tried at the same time;
when both work, what fails is between them, and parts of one with parts of the other are tried.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ClusterShell.NodeSet import NodeSet

from xpulab.child import run as run_child
from xpulab.errors import InputError
from xpulab.fleet.cluster.engines import node_names
from xpulab.fleet.cluster.exchange import PREFIX
from xpulab.messages import N_, one_line

Group = tuple[str, ...]
Try = Callable[[Sequence[Group]], Mapping[Group, str]]
"""Tries groups without a node in common at the same time: by group why it is red, "" when it is green."""

_PORTS = range(20_000, 30_000)
"""Below those that Linux assigns by itself."""
_STARTS_WITHIN = 60.0
"""Seconds that srun has beside those of the tasks."""


def smallest_red(nodes: Group, tries: Try) -> list[tuple[Group, str]]:
    """The smallest red groups, each with the reason: a node alone, two that do not work together, or more; empty: all work."""
    why = tries([nodes])[nodes]
    return list(_within(nodes, why, tries)) if why else []


def _within(group: Group, why: str, tries: Try) -> Iterator[tuple[Group, str]]:
    """The smallest red groups of a red one."""
    if len(group) == 1:
        yield group, why
        return
    halves = _halves(group)
    tried = tries(halves)
    if not any(tried.values()):
        yield from _between(halves[0], halves[1], why, tries)
    for half in halves:
        if tried[half]:
            yield from _within(half, tried[half], tries)


def _between(left: Group, right: Group, why: str, tries: Try) -> Iterator[tuple[Group, str]]:
    """The smallest red groups of two that work alone, and not together."""
    if len(left) == len(right) == 1:
        yield left + right, why
        return
    is_found = False
    for pairs in _rounds(_halves(left), _halves(right)):
        tried = tries([one + other for one, other in pairs])
        for one, other in pairs:
            if reason := tried[one + other]:
                is_found = True
                yield from _between(one, other, reason, tries)
    if not is_found:
        yield left + right, why


def _rounds(lefts: Sequence[Group], rights: Sequence[Group]) -> list[list[tuple[Group, Group]]]:
    """All pairs of a left and a right part; those of a round have no node in common."""
    if len(lefts) == len(rights) == 2:
        return [list(zip(lefts, rights, strict=True)), list(zip(lefts, reversed(rights), strict=True))]
    return [[(one, other)] for one in lefts for other in rights]


def _halves(group: Group) -> list[Group]:
    middle = (len(group) + 1) // 2
    return [group[:middle], group[middle:]] if len(group) > 1 else [group]


@dataclass(frozen=True)
class Steps:
    """Tries groups as steps of the job that this process runs in.

    addresses: of each node. cards: ranks of each. seconds: for one trial. xpulab: the words that start it. options: of srun.
    """

    addresses: Mapping[str, str]
    cards: int
    seconds: float
    xpulab: Sequence[str]
    options: Sequence[str]
    say: Callable[[str], None]

    def __call__(self, groups: Sequence[Group]) -> Mapping[Group, str]:
        """As Try."""
        with ThreadPoolExecutor(len(groups)) as pool:
            tried = dict(zip(groups, pool.map(self._try, groups), strict=True))
        for group, why in tried.items():
            self.say(f"{'red  ' if why else 'green'}  {NodeSet.fromlist(group)}{f': {why}' if why else ''}")
        return tried

    def _try(self, group: Group) -> str:
        master = f"{self.addresses[group[0]]}:{secrets.choice(_PORTS)}"
        srun = [
            "srun",
            f"--nodelist={','.join(group)}",
            f"--nodes={len(group)}",
            "--ntasks-per-node=1",
            "--overlap",
            "--mpi=none",
        ]
        srun += [f"--ntasks={len(group)}", "--cpu-bind=none", "--kill-on-bad-exit=1", "--input=none", *self.options]
        words = [*srun, *self.xpulab, "fleet", "exchange", master, str(len(group)), str(self.cards), str(self.seconds)]
        ran = run_child(words, self.seconds + _STARTS_WITHIN)
        if ran.status == 0:
            return ""
        lines = [line.strip() for line in (ran.output + ran.errors).splitlines() if line.strip()]
        said = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
        return one_line(next(iter(said or lines), N_("srun did not end and said nothing")))


def addresses(nodes: str) -> dict[str, str]:
    """The address of each of these nodes, or of all of the job that this process runs in; outside of one raises InputError."""
    job = os.environ.get("SLURM_JOB_NODELIST")
    if not job:
        raise InputError("no job of Slurm: call it in one that has the nodes, for example salloc --nodes=8 xpulab fleet links")
    wanted = node_names(nodes or job)
    if missing := sorted(set(wanted) - set(node_names(job))):
        raise InputError(f"--nodes {nodes}: {', '.join(missing)} is not in this job, which has {job}")
    ran = run_child(["sinfo", "--noheader", "--Node", f"--nodes={','.join(wanted)}", "--format=%N %o"], _STARTS_WITHIN)
    found = dict(line.split(maxsplit=1) for line in ran.output.splitlines())
    return {node: found.get(node, node).strip() for node in wanted}
