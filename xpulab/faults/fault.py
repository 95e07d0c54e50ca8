"""One fault: what breaks, how it is brought into a notebook's process, and the checks that must turn red."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A way in which training really goes wrong.

    name: literal, unique in the catalogue. what: one sentence for the reader of a table.
    notebook: the one that must see it; device: on which lane, cpu or sim.
    breaks: Python that the notebook's process runs before the first cell, as the body of a function.
    sim_faults: faults of the simulated cards, in the grammar of xpulab.sim.faults.
    seen_by: the checks that must turn red; others may.
    says: a text that the notebook's reason must hold, for a fault that ends the notebook: what comes after is missing then.
    """

    name: str
    what: str
    notebook: str
    seen_by: tuple[str, ...]
    breaks: str = ""
    device: str = "cpu"
    sim_faults: str = ""
    says: str = ""


_IN_EVERY_RANK = """
from xpulab import ranks
run = ranks.run
def run_with_fault(function, n, *arguments, **options):
    def in_a_rank(*given):
{fault}
        return function(*given)
    return run(in_a_rank, n, *arguments, **options)
ranks.run = run_with_fault
"""


def in_every_rank(breaks: str) -> str:
    """`breaks` for the ranks that a notebook starts, which are processes of their own: it travels with their function."""
    return _IN_EVERY_RANK.replace("{fault}", textwrap.indent(textwrap.dedent(breaks).strip(), " " * 8))
