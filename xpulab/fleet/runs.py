"""Reads a run from its folder, its result.json or its bundle; of it what is compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from xpulab.devices import DEVICES
from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.records.record import OUTCOMES

RESULT = "result.json"
_IN_A_BUNDLE = f"run/{RESULT}"

_OF_A_CHECK = ("name", "outcome", "measured", "expected", "reason", "rows", "measurements", "digest")
_OF_A_ROW = ("case", "outcome", "measured", "expected", "reason")
"""The fields of checks and rows that are kept: the others (seconds, controls) say nothing about a difference."""


@dataclass(frozen=True)
class Run:
    """A run of `xpulab run`.

    name: of the node, or of the folder or file; unique among the runs that are compared.
    source: the folder or file it was read from.
    result: the content of its result.json; of checks and rows only the fields that are compared.
    """

    name: str
    source: Path
    result: Mapping[str, Any]

    @property
    def is_finished(self) -> bool:
        """Whether the run has a verdict: one under way, or killed, or that failed around it has none and is never healthy."""
        return self.result["outcome"] in ("passed", "failed", "partial")

    def checks(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Each check, with its notebook before it."""
        for notebook in self.result["notebooks"]:
            for check in notebook["checks"]:
                yield notebook, check


@dataclass(frozen=True)
class Unreadable:
    """A run that cannot be read. name: as the run would have. reason: the whole message of the error."""

    name: str
    source: Path
    reason: str


def read_runs(paths: Iterable[Path]) -> tuple[tuple[Run, ...], tuple[Unreadable, ...]]:
    """All runs, with unique names, and those that cannot be read. A folder that holds several runs or bundles stands for these.

    Raises InputError when a path does not exist, holds no run, or the same run is named twice.
    """
    runs, unreadable = [], []
    for source in find_sources(paths):
        try:
            runs.append(read_run(source))
        except InputError as error:
            unreadable.append(Unreadable(_name_of(source), source, str(error)))
    return tuple(_distinguished(runs)), tuple(unreadable)


def find_sources(paths: Iterable[Path]) -> list[Path]:
    """Each path, or the runs and bundles in the folder that it names. Raises InputError as read_runs."""
    try:
        sources = [source for path in paths for source in _sources(path)]
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}; name a folder that you may read") from error
    repeated = [source for source, count in Counter(source.resolve() for source in sources).items() if count > 1]
    if repeated:
        raise InputError(f"{repeated[0]}: named twice; name every run once")
    return sources


def _sources(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(f"{path}: does not exist; name the folder of `xpulab run --out`, a result.json or a bundle")
    if path.is_file() or (path / RESULT).exists():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix == ".zip" or (each / RESULT).is_file())
    if not found:
        raise InputError(f"{path}: holds no {RESULT}, no bundle and no folder of a run; `xpulab run --out {path}` makes one")
    return found


def read_run(path: Path, name: str | None = None) -> Run:
    """The run in a folder of `xpulab run`, a result.json, or a bundle, whose checksums are verified.

    name: of the run; None takes that of the node in the bundle's manifest, else that of the folder or file.
    Raises InputError when there is none, or it is damaged.
    """
    node, content = (None, _content(path)) if path.is_dir() or path.suffix == ".json" else _content_of_bundle(path)
    try:
        result = json.loads(content.decode("utf-8"), object_pairs_hook=_object)
        _require_fields(result)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise InputError(f"{path}: not what `xpulab run` writes: {error!r}; leave it out, or run it again") from error
    return Run(name or node or _name_of(path), path, result)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the JSON; of checks and rows what is compared."""
    found = dict(pairs)
    if "rows" in found:
        return {field: found.get(field) for field in _OF_A_CHECK}
    if "case" in found and "control" in found:
        return {field: found[field] for field in _OF_A_ROW}
    return found


def _require_fields(result: Any) -> None:
    """Raises KeyError, TypeError, ValueError, AttributeError or IndexError unless the result has what is compared."""
    for field in ("outcome", "level", "cards"):
        result[field]
    if datetime.fromisoformat(result["date"]).utcoffset() is None:
        raise ValueError(f"its date {result['date']!r} has no time zone")
    if result["device"] not in DEVICES:
        raise ValueError(f"no device {result['device']!r}")
    result["machine"].items(), result["versions"].items()
    for card in result["card_facts"]:
        card["index"], card["serial"], card["model"], card["firmware"]
    for notebook in result["notebooks"]:
        for field in ("name", "outcome", "reason"):
            notebook[field]
        for check in notebook["checks"]:
            for part in (check, *check["rows"]):
                part["measured"], part["name" if part is check else "case"]
                if part["outcome"] not in OUTCOMES:
                    raise ValueError(f"{check['name']} has the outcome {part['outcome']!r}")
            for each in check["measurements"] or ():
                each["case"], each["kind"], each["unit"], each["conditions"].items(), sum(each["values"]), each["values"][-1]


def _content(path: Path) -> bytes:
    file = path / RESULT if path.is_dir() else path
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}; name the folder of a run, or a bundle") from error


def _content_of_bundle(path: Path) -> tuple[str | None, bytes]:
    """The name of the node, where the manifest has one, and the content of result.json, compared with its checksum."""
    made, contents = bundle.read(path, _IN_A_BUNDLE)
    if _IN_A_BUNDLE not in contents:
        raise InputError(f"{path}: holds no {_IN_A_BUNDLE}; name bundles of `xpulab run`, not of a soak")
    return made.node, contents[_IN_A_BUNDLE]


def _name_of(path: Path) -> str:
    """Of a folder its name, of a result.json that of its folder, of a bundle its name without the ending."""
    absolute = path.resolve()
    if absolute.name == RESULT:
        return absolute.parent.name
    return absolute.name if absolute.is_dir() else absolute.stem


def _distinguished(runs: Sequence[Run]) -> list[Run]:
    """The runs with unique names: where several have one, the name of the file is added, or else its path."""
    for suffix in (_name_of, str):
        counts = Counter(run.name for run in runs)
        runs = [run if counts[run.name] == 1 else replace(run, name=f"{run.name} ({suffix(run.source)})") for run in runs]
    return list(runs)
