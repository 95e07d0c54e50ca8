"""Pairs of nodes in rounds, all pairs of a round at the same time; and which rates are slow against those of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from xpulab.fleet.across.search import LINK, NODE, RootCause

Pair = tuple[str, str]

ALL_PAIRS_UP_TO = 16
"""With more nodes each is measured with its two neighbours in the list only: so the number of rounds does not grow."""


def rounds(nodes: Sequence[str]) -> list[list[Pair]]:
    """The pairs to measure, in rounds in which each node is at most once: every pair, or neighbours of many nodes."""
    return all_pairs(nodes) if len(nodes) <= ALL_PAIRS_UP_TO else neighbours(nodes)


def all_pairs(nodes: Sequence[str]) -> list[list[Pair]]:
    """Every pair once, in n - 1 rounds (n of them for an odd number): the circle method, one node stays, the others turn."""
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    place = {node: number for number, node in enumerate(nodes)}
    found = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        together = [(a, b) for a, b in facing if a is not None and b is not None]
        found.append([(a, b) if place[a] < place[b] else (b, a) for a, b in together])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def neighbours(nodes: Sequence[str]) -> list[list[Pair]]:
    """Each node with the one before it and the one behind it, the last with the first: two rounds, three for an odd number."""
    n = len(nodes)
    edges = [(nodes[at], nodes[at + 1]) for at in range(n - 1)]
    last = (nodes[0], nodes[-1])
    return [edges[0::2], [*edges[1::2], last]] if n % 2 == 0 else [edges[0::2], edges[1::2], [last]]


def typical(rates: Mapping[Pair, float]) -> float:
    """What a good link carries: the median over nodes of the best rate of each. A slow node changes all its rates, so that with
    few nodes the median of all pairs would be that of a slow one."""
    nodes = {node for pair in rates for node in pair}
    return median(max(rate for pair, rate in rates.items() if node in pair) for node in nodes)


def slow(rates: Mapping[Pair, float], share: float) -> list[RootCause]:
    """The nodes and links whose rates, in GB/s, are below this share of the typical one.

    A node is slow when all its rates are, of two pairs at least; a link when both of its ends have a pair that is not slow.
    """
    if len(rates) < 2:
        return []
    usual = typical(rates)
    below = {pair for pair, rate in rates.items() if rate < share * usual}
    nodes = sorted({node for pair in below for node in pair})
    of_node = {node: [pair for pair in rates if node in pair] for node in nodes}
    bad = [node for node in nodes if len(of_node[node]) > 1 and all(pair in below for pair in of_node[node])]
    causes = []
    for node in bad:
        best = max(rates[pair] for pair in of_node[node])
        evidence = f"slow with each of the {len(of_node[node])} nodes that it was measured with"
        causes.append(RootCause(NODE, (node,), _compared(best, usual), evidence))
    for pair in sorted(below):
        if not set(pair) & set(bad):
            causes.append(RootCause(LINK, pair, _compared(rates[pair], usual), "each is not slow with another node"))
    return causes


def _compared(rate: float, usual: float) -> str:
    return f"slow: {rate:.3g} GB/s, others {usual:.3g} GB/s"
