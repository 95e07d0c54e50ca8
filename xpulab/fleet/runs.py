"""Reads a run from its folder, its result.json or its bundle; of it what is compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema

from xpulab import files
from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.records.record import RED

RESULT = "result.json"
_IN_A_BUNDLE = f"run/{RESULT}"

_OF_A_CHECK = ("name", "outcome", "measured", "expected", "reason", "rows", "measurements", "digest")
_OF_A_ROW = ("case", "outcome", "measured", "expected", "reason")
"""The fields of checks and rows that are kept: the others (seconds, controls) say nothing about a difference."""

LARGEST = 16 * 2**20
"""Bytes of a result.json: one of all notebooks at level standard has 2 MB. Read it takes 20 times as much memory."""
_LATER = frozenset({"digest", "measurements", "section"})
"""What an earlier version did not write."""


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
        """Whether the run has ended: one under way, or killed, has no verdict and is never healthy."""
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
    node, content = (None, content_of(path)) if path.is_dir() or path.suffix == ".json" else _content_of_bundle(path)
    result = read_result(content, str(path))
    for notebook in result["notebooks"]:
        for check in notebook["checks"]:
            for measurement in check.get("measurements", ()):
                measurement["values"] = [float(value) for value in measurement["values"]]
            check["rows"] = [{field: row[field] for field in _OF_A_ROW} for row in check["rows"]]
        notebook["checks"] = [{field: check.get(field) for field in _OF_A_CHECK} for check in notebook["checks"]]
    return Run(name or node or _name_of(path), path, result)


def read_result(content: bytes, where: str) -> dict[str, Any]:
    """A result.json that somebody else may have written: each field has its type, each name its grammar, each notebook is there
    once, and what is green holds nothing red. Raises InputError, which names `where`.
    """
    try:
        if len(content) > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MiB")
        result = json.loads(content)
        _validator()(result)
        _require_consistent(result)
    except (ValueError, RecursionError) as error:
        why = files.shortened(str(error))
        raise InputError(f"{where}: not what `xpulab run` writes: {why}; leave it out, or run it again") from error
    return result


@cache
def _validator() -> Callable[[Any], Any]:
    """Of data/schema/result.schema.json, without what an earlier version did not write, and with what a later one may add."""

    def lenient(part: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in part.items() if (key, value) != ("additionalProperties", False)}
        return kept | {"required": [name for name in kept["required"] if name not in _LATER]} if "required" in kept else kept

    text = files.data("schema", "result.schema.json").read_text(encoding="utf-8")
    return fastjsonschema.compile(json.loads(text, object_hook=lenient), use_default=False)


def _require_consistent(result: Mapping[str, Any]) -> None:
    """Raises ValueError for a notebook or a check that is there twice, and for red in what says that it is green."""
    notebooks = result["notebooks"]
    _require_unique([notebook["name"] for notebook in notebooks])
    for notebook in notebooks:
        _require_unique([check["name"] for check in notebook["checks"]])
        red = [check["name"] for check in notebook["checks"] if check["outcome"] in RED]
        if red and notebook["outcome"] in ("passed", "partial"):
            raise ValueError(f"{notebook['name']} is {notebook['outcome']}, and its check {red[0]} is red")
        if result["green"] and notebook["outcome"] in ("failed", "missing"):
            raise ValueError(f"it is green, and {notebook['name']} is {notebook['outcome']}")


def _require_unique(names: Sequence[str]) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"{repeated[0]} is there twice")


def content_of(path: Path) -> bytes:
    """The result.json in a folder, or that file. Raises InputError when it cannot be read."""
    file = path / RESULT if path.is_dir() else path
    with files.opened(file) as opened:
        return opened.read(LARGEST + 1)


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
