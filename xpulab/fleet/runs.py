"""Reads a run from its folder, its result.json or its bundle; of it what is compared."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema

from xpulab import files
from xpulab.errors import InputError
from xpulab.fleet import bundle, foreign
from xpulab.records.record import RED

RESULT = "result.json"
_IN_A_BUNDLE = f"run/{RESULT}"

_KEPT = {
    "": (
        *("outcome", "green", "reason", "device", "scope", "level", "cards", "seed", "date"),
        *("card_facts", "machine", "versions", "notebooks"),
    ),
    "card_facts": ("index", "model", "firmware", "state", "memory_total_mib", "link"),
    "machine": ("processor", "cores", "driver", "python", "system"),
    "notebooks": ("name", "outcome", "reason", "compared", "checks"),
    "checks": ("name", "outcome", "measured", "expected", "reason", "rows", "measurements", "digest"),
    "rows": ("case", "outcome", "measured", "expected", "reason"),
    "measurements": ("case", "kind", "unit", "values", "conditions"),
}
"""The fields that are kept, by the name of what has them: the others (seconds, controls) say nothing of a difference."""

LARGEST = 8 * 2**20
"""Bytes of a result.json: one of all notebooks at level standard has 2 MB."""
_LATER = frozenset({"digest", "measurements", "section"})
"""What an earlier version did not write."""


@dataclass(frozen=True)
class Run:
    """A run of `xpulab run`.

    name: of the node, or of the folder or file; unique among the runs that are compared.
    source: the folder or file it was read from.
    result: of the content of its result.json the fields that are compared, None where it has none.
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

    Raises InputError when a path does not exist: whatever else is wrong with one of them is said of that one.
    """
    read: dict[str, Run | Unreadable] = {}
    unreadable = []
    for source in (source for path in paths for source in _sources(path)):
        where = os.path.realpath(_file(source))
        if where in read:
            unreadable.append(Unreadable(_name_of(source), source, f"{source}: named twice; name every run once"))
        else:
            read[where] = read_each(source)
    unreadable += [run for run in read.values() if isinstance(run, Unreadable)]
    return tuple(_distinguished([run for run in read.values() if isinstance(run, Run)])), tuple(unreadable)


def _sources(path: Path) -> list[Path]:
    """The path, or the runs and bundles in the folder that it names, also those that cannot be read."""
    if not _is_there(path):
        raise InputError(f"{path}: does not exist; name the folder of `xpulab run --out`, a {RESULT} or a bundle")
    if not os.path.isdir(path) or _is_there(path / RESULT):
        return [path]
    try:
        return sorted(each for each in path.iterdir() if each.suffix == ".zip" or _is_there(each / RESULT)) or [path]
    except OSError:
        return [path]


def _is_there(path: Path) -> bool:
    """Whether something has this name, or nobody can know, as below a link to itself and in a folder of somebody else."""
    try:
        path.lstat()
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, NotADirectoryError))
    return True


def read_each(path: Path, name: str | None = None) -> Run | Unreadable:
    """As `read_run`, for one of many: with what is wrong with it."""
    try:
        return read_run(path, name)
    except InputError as error:
        return Unreadable(name or _name_of(path), path, str(error))


def read_run(path: Path, name: str | None = None) -> Run:
    """The run in a folder of `xpulab run`, a result.json, or a bundle, whose checksums are verified.

    name: of the run; None takes that of the node in the bundle's manifest, else that of the folder or file.
    Raises InputError when there is none, or it is damaged.
    """
    is_bundle = _file(path).suffix != ".json"
    node, content = _content_of_bundle(path) if is_bundle else (None, content_of(path))
    return Run(name or node or _name_of(path), path, _kept(read_result(content, str(path))))


def _kept(value: Any, name: str = "") -> Any:
    """Of a field of a result what is compared."""
    if name == "values":
        return [float(each) for each in value]
    if isinstance(value, list):
        return [_kept(each, name) for each in value]
    if name in _KEPT and value:
        return {field: _kept(value.get(field), field) for field in _KEPT[name]}
    return value


def read_result(content: bytes, where: str) -> dict[str, Any]:
    """A result.json that somebody else may have written: each field has its type, each name its grammar, each notebook is there
    once, and what is green holds nothing red. Raises InputError, which names `where`.
    """
    try:
        if len(content) > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MiB")
        result = foreign.loads(content.decode("utf-8"))
        _validator()(result)
        _require_consistent(result)
    except ValueError as error:
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
    if result["green"] and (result["outcome"] in ("failed", "unknown") or result.get("lost")):
        raise ValueError("it is green, and its outcome is not, or its accelerator is lost")
    notebooks = result["notebooks"]
    _require_unique([notebook["name"] for notebook in notebooks])
    for notebook in notebooks:
        _require_unique([check["name"] for check in notebook["checks"]])
        for check in notebook["checks"]:
            if check["outcome"] not in RED and (red := [row["case"] for row in check["rows"] if row["outcome"] in RED]):
                raise ValueError(f"{check['name']} is {check['outcome']}, and its row {red[0]} is red")
            if check["outcome"] in RED and notebook["outcome"] in ("passed", "partial"):
                raise ValueError(f"{notebook['name']} is {notebook['outcome']}, and its check {check['name']} is red")
        if result["green"] and notebook["outcome"] in ("failed", "missing"):
            raise ValueError(f"it is green, and {notebook['name']} is {notebook['outcome']}")


def _require_unique(names: Sequence[str]) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"{repeated[0]} is there twice")


def content_of(path: Path) -> bytes:
    """The result.json in a folder, or that file, up to one byte too many. Raises InputError when it cannot be read."""
    file = _file(path)
    if not _is_there(file):
        raise InputError(f"{path}: holds no {RESULT}, no bundle and no folder of a run; `xpulab run --out {path}` makes one")
    try:
        with files.opened(file) as opened:
            return opened.read(LARGEST + 1)
    except OSError as error:  # of a disk or a network file system
        raise InputError(f"{file}: cannot be read: {error.strerror}; copy it to another disk") from error


def _file(path: Path) -> Path:
    """The result.json in a folder, else the path itself."""
    return path / RESULT if os.path.isdir(path) else path


def _content_of_bundle(path: Path) -> tuple[str | None, bytes]:
    """The name of the node, where the manifest has one, and the content of result.json, compared with its checksum."""
    made, contents = bundle.read(path, _IN_A_BUNDLE)
    if _IN_A_BUNDLE not in contents:
        raise InputError(f"{path}: holds no {_IN_A_BUNDLE}; name bundles of `xpulab run`, not of a soak")
    return made.node, contents[_IN_A_BUNDLE]


def _name_of(path: Path) -> str:
    """Of a folder its name, of a result.json that of its folder, of a bundle its name without the ending."""
    absolute = Path(os.path.abspath(path))
    if absolute.name == RESULT:
        return absolute.parent.name
    return absolute.stem if absolute.suffix in (".zip", ".json") else absolute.name


def _distinguished(runs: Sequence[Run]) -> list[Run]:
    """The runs with unique names: where several have one, the name of the file is added, or else its path."""
    for suffix in (_name_of, str):
        counts = Counter(run.name for run in runs)
        runs = [run if counts[run.name] == 1 else replace(run, name=f"{run.name} ({suffix(run.source)})") for run in runs]
    return list(runs)
