"""What a command runs on and where it writes: device, cards, notebooks at a time, folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from xpulab.devices import REHEARSED, SIMULATED, STANDS_FOR, starts_cold, wheel_device
from xpulab.errors import InputError
from xpulab.messages import N_

if TYPE_CHECKING:
    from xpulab.doctor.meant import Expected
    from xpulab.harness.plan import Plan


def device(asked: str, expected: Expected | None = None) -> str:
    """The device to run on: the one asked for when it is there, for auto the one that this machine is meant to have.

    expected: as `expect` returns it; None: what the variable says.
    Raises AcceleratorLost for auto where that cannot be used, and for an accelerator with fewer cards than expected; InputError
    for a device that is named and not there, and when the installed wheel is not the device's.
    """
    from xpulab.doctor import meant
    from xpulab.doctor.detect import detect, require
    from xpulab.doctor.versions import framework_row, require_one_framework
    from xpulab.records.environments import installed_frameworks

    found, wheels, expect = detect(), installed_frameworks(), expected or meant.expected()
    device = meant.auto(found, wheels, expect) if asked == "auto" else asked
    require(device, found)
    if device in ("xpu", "gpu") and expect is not None:
        meant.require_cards(device, found, expect)
    require_one_framework(device)
    wanted = framework_row(device)
    if wanted.what not in wheels:
        if asked == "auto" and device != "cpu":
            raise meant.wrong_wheel(device, found, wheels, wanted.what)
        install = N_("{device} needs {what}, which is not installed here: run env/validate.sh", device=device, what=wanted.what)
        raise InputError(
            install
            if wheel_device(device) == "cpu"
            else N_("{install}, or pass --device cpu to run on the CPU all the same", install=install)
        )
    return device


def expect(asked: str | None, device: str) -> Expected | None:
    """From now on this process, and each that it starts, expects so many cards: what --expect, else the variable says.

    Raises InputError for anything but a number of at least 1, and for the CPU, which has no cards.
    """
    from xpulab.doctor import meant

    if asked is None:
        return meant.expected()  # what is wrong in a variable is said now
    expected = meant.expected_count(asked)
    if device == "cpu":
        raise InputError(
            N_("{source}: counts cards, and the CPU has none; remove it, or name another device", source=expected.source)
        )
    os.environ[meant.EXPECT] = str(expected.count)
    return expected


def rehearse(asked: str | None, device: str) -> None:
    """From now on simulated cards stand for this device, in this process and in each that it starts: what --as says.

    Raises InputError for anything but simulated cards, and for a device that they cannot stand for.
    """
    os.environ.pop(STANDS_FOR, None)  # a rehearsal is asked for, never inherited
    if asked is None:
        return
    if asked not in REHEARSED:
        raise InputError(N_("--as {asked}: choose {devices}", asked=asked, devices=" or ".join(REHEARSED)))
    if device != SIMULATED:
        raise InputError(N_("--as {asked}: only simulated cards stand for another device: add --device sim", asked=asked))
    os.environ[STANDS_FOR] = asked


def show_machine(rehearsed: str, within: Path, cards: int) -> None:
    """From now on this process, and each that it starts, sees a machine with cards of this device, and may use so many."""
    from xpulab.doctor.rehearsed import machine
    from xpulab.harness.shares import VISIBLE

    visible = {VISIBLE[rehearsed]: ",".join(map(str, range(cards)))}
    os.environ.update({**machine(rehearsed, within / "machine"), **visible})


def folder(out: Path | None) -> Path:
    """Where the reports of a run go."""
    return (out or Path("out") / datetime.now().strftime("%Y-%m-%d-%H%M%S")).resolve()


def alone(flag: str, **others: object) -> None:
    """Raise InputError for what has no effect beside a flag. others: by name of an option its value, empty without it."""
    if given := next((name for name, value in others.items() if value), None):
        raise InputError(N_("--{given} has no effect beside {flag}: leave it out", given=given, flag=flag))


def cards(device: str, asked: int | None, plans: Sequence[Plan], expected: Expected | None = None) -> int:
    """How many cards a notebook may use: all that this process may use; there are as many simulated ones as one asks for.

    expected: as of `device`.
    Raises AcceleratorLost for fewer simulated cards than expected, and InputError when the plug-in that simulates them cannot
    be built, which is done now.
    """
    if device == "cpu":
        return asked or 1
    if device != SIMULATED:
        from xpulab.doctor.detect import detect
        from xpulab.doctor.meant import visible_cards

        return asked or max(1, visible_cards(device, detect())[0])
    from xpulab import sim
    from xpulab.doctor import meant

    cards = asked or max(plan.cards for plan in plans)
    meant.require_simulated(cards, expected or meant.expected())
    sim.environment(cards)
    return cards


def jobs(device: str, notebooks: int, cards: int = 1) -> int:
    """How many notebooks run at a time: on the CPU three for two cores, since ranks wait for each other and for limits.

    On cards it is one for each card, since notebooks would share its memory, and at most one for each core.
    """
    from xpulab.records.usable import whole_cores

    if not starts_cold(device):
        return min(notebooks, max(1, whole_cores() * 3 // 2))
    return min(cards, max(1, whole_cores()))


def limit_threads(at_once: int, notebooks: int) -> None:
    """From now on this process, and each that it starts, computes with one thread, where the user has not said otherwise.

    Notebooks share the cores, and tiny models gain nothing from more. Only beside others the matrix products are limited too:
    two threads of one wait for each other in busy loops.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if notebooks > 1 and at_once != 1:
        os.environ.setdefault("MKL_NUM_THREADS", "1")
