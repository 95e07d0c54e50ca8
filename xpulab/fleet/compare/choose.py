"""Which comparison runs are for: machines of a fleet, a machine before and after an upgrade, or devices."""

from __future__ import annotations

from collections.abc import Sequence

from xpulab.errors import InputError
from xpulab.fleet.compare.comparison import FLEET, KINDS, PARITY, UPGRADE, Comparison
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.compare.parity import compare_devices
from xpulab.fleet.compare.upgrade import compare_upgrade, software
from xpulab.fleet.machine_type import hardware, machine_type
from xpulab.fleet.runs import Run, Unreadable


def compare(runs: Sequence[Run], unreadable: Sequence[Unreadable], kind: str | None, mixed: bool) -> Comparison:
    """Compare runs. kind: one of KINDS, or None for the one that fits them. mixed: only of a fleet.

    Raises InputError when they cannot be compared so; what cannot be read is a finding of a fleet, else an error.
    """
    if kind not in (*KINDS, None):
        raise InputError(f"--as {kind}: choose {', '.join(KINDS)}, or leave it out")
    if not runs:
        raise InputError(unreadable[0].reason)
    if len(runs) + len(unreadable) < 2:
        raise InputError(f"{runs[0].source}: one run; name two or more, or a folder that holds several")
    kind = kind or (FLEET if mixed else fitting(runs))
    if mixed and kind != FLEET:
        raise InputError(f"--mixed: only for a fleet, and this is {kind}")
    if kind == FLEET:
        return compare_machines(runs, unreadable, mixed)
    if unreadable:
        raise InputError(unreadable[0].reason)
    if len(runs) < 2:
        raise InputError(f"{runs[0].source}: one run; name two or more")
    return {UPGRADE: compare_upgrade, PARITY: compare_devices}[kind](runs)


def fitting(runs: Sequence[Run]) -> str:
    """PARITY for a run of each of several devices, UPGRADE for two runs of one machine with different versions, else FLEET.

    More than two runs are an upgrade only when they name the same cards: otherwise they may be nodes of which one has another
    version.
    """
    devices = {run.result["device"] for run in runs}
    if len(devices) > 1 and len(devices) == len(runs):
        return PARITY
    if not all(run.is_finished for run in runs):
        return FLEET
    of_one_type = len({hardware(machine_type(run), run.result["versions"]) for run in runs}) == 1
    two_releases = len({tuple(sorted(software(run).items())) for run in runs}) == 2
    return UPGRADE if of_one_type and two_releases and _are_one_machine(runs) else FLEET


def _are_one_machine(runs: Sequence[Run]) -> bool:
    """Whether all runs name the same node and cards; two that name none of them may be, more are rather a fleet."""
    nodes = {run.result.get("node") for run in runs}
    cards = {tuple(card["serial"] for card in run.result["card_facts"]) for run in runs}
    named = all(each and all(each) for each in cards)
    return len(nodes) == len(cards) == 1 and (named or len(runs) == 2)
