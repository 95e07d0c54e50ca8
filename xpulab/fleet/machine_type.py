"""The type of a machine: what must be equal for values and rates of two runs to be comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xpulab.devices import wheel_device
from xpulab.errors import InputError
from xpulab.fleet.runs import Run

MachineType = tuple[tuple[str, str], ...]
"""Names and values of what makes a type, in a fixed order."""

VERSIONED = ("driver", "python")
"""Entries of a type that are versions, besides those of the packages."""

_SHOWN = 6
"""How many nodes of a group are named."""


def machine_type(run: Run) -> MachineType:
    """The type of the machine that a finished run ran on, its versions included, with the level and the seed of the run.

    A run in which no notebook recorded where it ran has no processor: it is of no known type.
    """
    result = run.result
    machine, cards = result["machine"], result["card_facts"]
    named = {
        **_asked(result),
        "processor": machine.get("processor"),
        "processor cores": machine.get("cores") if wheel_device(result["device"]) == "cpu" else None,
        "installed cards": ", ".join(_counted([str(card["model"]) for card in cards])),
        "driver": machine.get("driver"),
        "python": machine.get("python"),
        **result["versions"],
    }
    return tuple((name, str(value)) for name, value in named.items() if value not in (None, ""))


def is_known(run: Run) -> bool:
    """Whether a notebook of the run recorded where it ran."""
    return bool(run.result["machine"])


def hardware(of_type: MachineType, versions: Mapping[str, Any]) -> MachineType:
    """A type without its versions, so that a machine before and after an upgrade has the same one."""
    return tuple((name, value) for name, value in of_type if name not in VERSIONED and name not in versions)


def grouped_by_type(runs: Sequence[Run]) -> dict[MachineType, list[Run]]:
    """The runs of each type, the largest group first; those of no known type are left out."""
    groups: dict[MachineType, list[Run]] = {}
    for run in runs:
        if is_known(run):
            groups.setdefault(machine_type(run), []).append(run)
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))


def refuse_mixed(groups: Mapping[MachineType, Sequence[Run]]) -> None:
    """Raises InputError with the groups when there are several types."""
    if len(groups) > 1:
        raise InputError(
            f"{len(groups)} types of machines, whose values and rates are not comparable: {'; '.join(format_groups(groups))}. "
            "Name the runs of one type, or compare within each with --mixed"
        )


def format_groups(groups: Mapping[MachineType, Sequence[Run]]) -> list[str]:
    """A line for each group: its nodes, and where its type is not the same in all groups."""
    differing = differing_names(list(groups))
    lines = []
    for of_type, runs in groups.items():
        values = dict(of_type)
        described = ", ".join(f"{name} {values.get(name, 'none')}" for name in differing) or format_type(of_type)
        lines.append(f"{format_nodes([run.name for run in runs])}: {described}")
    return lines


def differing_names(types: Sequence[MachineType]) -> list[str]:
    """The names whose values are not the same in all types."""
    names = dict.fromkeys(name for each in types for name, _ in each)
    return [name for name in names if len({dict(each).get(name) for each in types}) > 1]


def format_type(of_type: MachineType) -> str:
    """A type in one line."""
    return ", ".join(f"{name} {value}" for name, value in of_type)


def format_nodes(names: Sequence[str]) -> str:
    """How many nodes, and the names of the first ones."""
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names)} {'run' if len(names) == 1 else 'runs'} ({shown})"


def _asked(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the run was asked for, which decides what is computed."""
    return {"device": result["device"], "cards": result["cards"], "level": result["level"], "seed": result.get("seed", 0)}


def _counted(models: Sequence[str]) -> list[str]:
    return [f"{models.count(model)} x {model}" for model in sorted(set(models))]
