"""Which comparison runs are for: machines of a fleet, a machine before and after an upgrade, or devices."""

from __future__ import annotations

from collections.abc import Sequence

from xpulab.errors import InputError
from xpulab.fleet.compare.comparison import FLEET, KINDS, PARITY, UPGRADE, Comparison
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.compare.parity import compare_devices
from xpulab.fleet.compare.upgrade import compare_upgrade
from xpulab.fleet.compare.upgrade_tables import software
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
    finished = [run for run in runs if run.is_finished]
    one_machine = len({hardware(machine_type(run), run.result["versions"]) for run in finished}) == 1
    several_versions = len({tuple(sorted(software(run).items())) for run in finished}) == 2
    if len(finished) == len(runs) and one_machine and several_versions and (len(runs) == 2 or _same_cards(runs)):
        return UPGRADE
    return FLEET


def _same_cards(runs: Sequence[Run]) -> bool:
    serials = {tuple(card["serial"] for card in run.result["card_facts"]) for run in runs}
    return len(serials) == 1 and all(serials.pop() or [None])
