"""The ranks of a trial: which node each is on, at which address and port."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xpulab.fleet.across.links import Group, Setup
from xpulab.ranks.environment import Seat

STORE, MEETING, FIRST = 0, 1, 2
"""Ports of a trial, counted from its first: of Paddle's store and of the meeting, both of rank 0, then one a rank."""


@dataclass(frozen=True)
class Seats:
    """The ranks of a trial, in the order of its nodes; the tasks of a node by their local number.

    master, meeting: "address:port". endpoints, nodes: of each rank. cards: ranks of a node. device: one of DEVICES.
    """

    master: str
    meeting: str
    endpoints: tuple[str, ...]
    nodes: tuple[str, ...]
    cards: int
    device: str

    def rank_of(self, node: str, local: int) -> int:
        """The rank of a task."""
        return self.nodes.index(node) + local

    def seat(self, node: str, local: int, card: int) -> Seat:
        """The place of a task's rank in the job."""
        nodes = len(self.nodes) // self.cards
        return Seat(self.rank_of(node, local), local, self.cards, card, nodes, self.master, self.endpoints, self.device)

    def ports_on(self, node: str, local: int) -> list[int]:
        """The ports that a task's rank will listen on."""
        rank = self.rank_of(node, local)
        mine = [self.endpoints[rank], *([self.master, self.meeting] if rank == 0 else [])]
        return [int(each.rpartition(":")[2]) for each in mine]


def seats_of(group: Group, setup: Setup) -> Seats:
    """The ranks of a trial. Nodes with the same address, as in a test on one host, get different ports."""
    used: Counter[str] = Counter()
    endpoints, nodes = [], []
    for node in group.nodes:
        address = setup.addresses[node]
        for _ in range(setup.cards):
            endpoints.append(f"{address}:{group.port + FIRST + used[address]}")
            nodes.append(node)
            used[address] += 1
    first = setup.addresses[group.nodes[0]]
    master, meeting = (f"{first}:{group.port + place}" for place in (STORE, MEETING))
    return Seats(master, meeting, tuple(endpoints), tuple(nodes), setup.cards, setup.device)
