"""Reads the logs of trainings; every error names the file, the line and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError

QUANTITIES = ("learning_rate", "weights", "loss", "grad_norm")
"""The numbers of a step that are compared, in the order in which a step uses or computes them."""


@dataclass(frozen=True)
class LoggedStep:
    """One line of a log. line: its number in the file. values: by name of QUANTITIES, if logged. batch: a digest."""

    number: int
    line: int
    values: dict[str, float]
    batch: str | None


@dataclass(frozen=True)
class TrainingLog:
    """A log. environment: values by group and name, joined by a dot, as "optimizer.epsilon". steps: by their numbers."""

    path: Path
    environment: dict[str, Any]
    steps: dict[int, LoggedStep]

    @property
    def first(self) -> int:
        """The number of the first step."""
        return next(iter(self.steps))

    @property
    def last(self) -> int:
        """The number of the last step."""
        return next(reversed(self.steps))


def read_log(path: Path) -> TrainingLog:
    """Read and validate a log. Raises InputError for a file that is none, and for a damaged line."""
    lines = _lines(path)
    numbered = list(enumerate(lines, start=1))
    header = _object(path, 1, lines[0])
    if "format" not in header:
        raise InputError(
            f'{path} line 1: not a log of a training: its first line has no "format"; write it with xpulab.align.Log'
        )
    _check(path, 1, header, "header")
    steps: dict[int, LoggedStep] = {}
    for number, line in numbered[1:]:
        step = _step(path, number, line, is_last=number == len(lines))
        if steps and step.number <= (last := next(reversed(steps))):
            raise InputError(
                f"{path} line {number}: step {step.number} comes after step {last}; a log is of one training: "
                "give a resumed one a log of its own"
            )
        steps[step.number] = step
    if not steps:
        raise InputError(f"{path} line 1: no step follows; call step() of xpulab.align.Log in each step of the training")
    return TrainingLog(path, dict(_flat(header["environment"])), steps)


def numbers_compared(a: TrainingLog, b: TrainingLog, others: list[TrainingLog], common: bool) -> list[int]:
    """The numbers of the steps that all logs have.

    One may begin later than another, as a resumed training does. Any other difference raises InputError with the line where it
    is, unless only common steps are asked for.
    """
    logs = [a, b, *others]
    shared = sorted(set.intersection(*(set(log.steps) for log in logs)))
    if not shared:
        ranges = ", ".join(f"{log.path} has steps {log.first} to {log.last}" for log in logs)
        raise InputError(f"the logs have no step in common: {ranges}; compare logs of the same steps")
    if common:
        return shared
    begin = max(log.first for log in logs)
    for log in logs:
        for other in logs:
            missing = next((number for number in other.steps if number >= begin and number not in log.steps), None)
            if missing is not None:
                raise InputError(_missing(log, other, missing))
    return shared


def _missing(log: TrainingLog, other: TrainingLog, missing: int) -> str:
    remedy = "let both run to the same step, or compare only the steps that all logs have with --common"
    at = f"{log.path} line {log.steps[log.last].line}"
    if missing > log.last:
        return f"{at}: the log ends with step {log.last}, {other.path} goes on to step {other.last}; {remedy}"
    after = next(step for step in log.steps.values() if step.number > missing)
    return f"{log.path} line {after.line}: step {missing}, which {other.path} has, is missing; {remedy}"


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; give the file that xpulab.align.Log has written"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line}: not UTF-8 at byte {error.start}; it is damaged: copy the log again") from error
    if not text.strip():
        raise InputError(
            f"{path} line 1: empty; the training ended before its first step, or the file is none of xpulab.align.Log"
        )
    return text.removesuffix("\n").split("\n")


def _object(path: Path, number: int, line: str, remedy: str = "copy the log again") -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {number}: not JSON: {error.msg} at column {error.colno}; {remedy}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} line {number}: expected an object, found {type(value).__name__}; {remedy}")
    return value


def _step(path: Path, number: int, line: str, is_last: bool) -> LoggedStep:
    remedy = "the training was killed while it wrote: remove this line" if is_last else "the log is damaged: copy it again"
    value = _object(path, number, line, remedy)
    if "format" in value:
        raise InputError(f"{path} line {number}: a second first line; two trainings wrote into this file: split it here")
    _check(path, number, value, "step")
    values = {name: float(value[name]) for name in QUANTITIES if name in value}
    return LoggedStep(value["step"], number, values, value.get("batch"))


def _check(path: Path, number: int, value: dict[str, Any], kind: str) -> None:
    """Raise InputError where a line does not fit data/schema/align_log.schema.json."""
    import jsonschema

    error = jsonschema.exceptions.best_match(_validator(kind).iter_errors(value))
    if error is not None:
        where = "".join(f"{part}: " for part in error.absolute_path)
        raise InputError(f"{path} line {number}: {where}{error.message}; data/schema/align_log.schema.json has the format")


_validators: dict[str, Any] = {}


def _validator(kind: str) -> Any:
    if kind not in _validators:
        import jsonschema

        schema = json.loads(files.data("schema", "align_log.schema.json").read_text(encoding="utf-8"))
        chosen = {"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]}
        _validators[kind] = jsonschema.Draft202012Validator(chosen)
    return _validators[kind]


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}", inner
