"""Reads the logs of trainings; every error names the file, the line and the remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError

QUANTITIES = ("learning_rate", "loss", "grad_norm")
"""The numbers of a step that are compared, in the order in which a step uses or computes them."""

LARGEST, LONGEST = 2**27, 2**20
"""Characters of a log, which then has about a million steps, and of a line."""
_REMEDY = "give the file that xpulab.align.Log has written"


@dataclass(frozen=True)
class LoggedStep:
    """One line of a log. values: by name of QUANTITIES, if logged. batch: a digest."""

    values: dict[str, float]
    batch: str | None


@dataclass(frozen=True)
class TrainingLog:
    """A log. environment: values by group and name, joined by a dot, as "optimizer.epsilon". steps: by their numbers."""

    path: Path
    environment: dict[str, Any]
    steps: dict[int, LoggedStep]

    def values(self, name: str, numbers: Sequence[int]) -> list[float]:
        """A quantity at these steps."""
        return [self.steps[number].values[name] for number in numbers]


def read_log(path: Path) -> TrainingLog:
    """Read and validate a log, from a file or a pipe. Raises InputError for one that is none, and for a damaged line."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else it waits for whoever may write into a named pipe
        os.set_blocking(descriptor, True)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    if len(text) > LARGEST:
        raise InputError(f"{path}: has more than {LARGEST >> 20} MiB; {_REMEDY}")
    first, *lines = text.removesuffix("\n").split("\n")
    number, steps = 1, dict[int, LoggedStep]()
    try:
        environment = dict(_flat(_parsed(path, 1, first, "header")["environment"]))
        for number, line in enumerate(lines, start=2):
            step = _parsed(path, number, line, "step")
            if steps and step["step"] <= (last := next(reversed(steps))):
                raise InputError(
                    f"{path} line {number}: step {step['step']} comes after step {last}; a log is of one training: "
                    "give a resumed one a log of its own"
                )
            values = {name: float(step[name]) for name in QUANTITIES if name in step}
            steps[step["step"]] = LoggedStep(values, step.get("batch"))
    except (ValueError, OverflowError, RecursionError) as error:
        found = f"not JSON within {LONGEST >> 20} MiB: {getattr(error, 'msg', error)} at column {getattr(error, 'colno', 1)}"
        raise InputError(f"{path} line {number}: {found}; {_REMEDY}, or remove a last line that was cut") from error
    if not steps:
        raise InputError(f"{path} line 1: no step follows; call step() of xpulab.align.Log in each step of the training")
    return TrainingLog(path, environment, steps)


def common_steps(logs: Sequence[TrainingLog]) -> list[int]:
    """The numbers of the steps that all logs have. Raises InputError when there are none."""
    shared = sorted(set.intersection(*(set(log.steps) for log in logs)))
    if not shared:
        ranges = ", ".join(f"{log.path} has steps {min(log.steps)} to {max(log.steps)}" for log in logs)
        raise InputError(f"the logs have no step in common: {ranges}; compare logs of the same steps")
    return shared


def _parsed(path: Path, number: int, line: str, kind: str) -> dict[str, Any]:
    """A line that fits data/schema/align_log.schema.json. kind: "header" or "step". Raises ValueError for no JSON."""
    import jsonschema

    value = json.loads(line[:LONGEST])  # what was cut is no JSON
    if violation := jsonschema.exceptions.best_match(_validator(kind).iter_errors(value)):
        found = "".join(f"{part}: " for part in violation.absolute_path) + files.shortened(violation.message)
        raise InputError(f"{path} line {number}: {found}; data/schema/align_log.schema.json has the format")
    return value


@cache
def _validator(kind: str) -> Any:
    import jsonschema

    schema = json.loads(files.data("schema", "align_log.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]})


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}", inner
