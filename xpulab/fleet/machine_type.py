"""The type of a machine: what must be equal for values and rates of two runs to be comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xpulab.devices import wheel_device
from xpulab.fleet.runs import Run

MachineType = tuple[tuple[str, str], ...]
"""Names and values of what makes a type, in a fixed order."""

_SHOWN = 6
"""How many nodes of a group are named."""


def hardware(run: Run) -> dict[str, str]:
    """By name what a run was asked for and the hardware it ran on."""
    result = run.result
    machine, models = result["machine"], [str(card["model"]) for card in result["card_facts"]]
    named = {
        "device": result["device"],
        "cards": result["cards"],
        "level": result["level"],
        "seed": result["seed"],
        "processor": machine.get("processor"),
        "processor cores": machine.get("cores") if wheel_device(result["device"]) == "cpu" else None,
        "installed cards": ", ".join(f"{models.count(model)} x {model}" for model in sorted(set(models))),
    }
    return {name: str(value) for name, value in named.items() if value not in (None, "")}


def software(run: Run) -> dict[str, str]:
    """By name what an upgrade changes: versions of packages, driver, Python and the operating system."""
    machine = run.result["machine"]
    named = {name: str(machine[name]) for name in ("driver", "python", "system") if machine.get(name)}
    return {**{name: str(version) for name, version in run.result["versions"].items()}, **named}


def machine_type(run: Run) -> MachineType:
    """Hardware and software of a run; the operating system decides no value."""
    return tuple((name, value) for name, value in {**hardware(run), **software(run)}.items() if name != "system")


def grouped_by_type(runs: Sequence[Run]) -> dict[MachineType, list[Run]]:
    """The runs of each type, the largest group first; left out are those that do not say where they ran."""
    groups: dict[MachineType, list[Run]] = {}
    for run in runs:
        if run.result["machine"]:
            groups.setdefault(machine_type(run), []).append(run)
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))


def format_groups(groups: Mapping[MachineType, Sequence[Run]]) -> list[str]:
    """A line for each group: its nodes, and where its type is not the same in all groups."""
    types = [dict(each) for each in groups]
    names = [name for name in dict.fromkeys(name for each in types for name in each)]
    differing = [name for name in names if len({each.get(name) for each in types}) > 1] or names
    return [
        f"{format_nodes([run.name for run in runs])}: "
        + ", ".join(f"{name} {dict(of_type).get(name, 'none')}" for name in differing)
        for of_type, runs in groups.items()
    ]


def format_nodes(names: Sequence[str]) -> str:
    """How many nodes, and the names of the first ones."""
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names)} {'run' if len(names) == 1 else 'runs'} ({shown})"
