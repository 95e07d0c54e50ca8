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
from xpulab.fleet import foreign
from xpulab.records.origin import seconds_of
from xpulab.records.record import COMPARED, GREEN_NOTEBOOKS, RED, is_green_run, worst

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
    """A result.json that somebody else may have written: each field has its type, each name its grammar, and what it says of
    itself follows from what it holds. Raises InputError, which names `where`.
    """
    return _read(content, where, "run", "result.schema.json", _contradictions)


def read_soak(content: bytes, where: str) -> dict[str, Any]:
    """A soak.json, in the same way."""
    return _read(content, where, "soak", "soak_result.schema.json", _contradictions_of_soak)


def _read(
    content: bytes, where: str, command: str, schema: str, contradictions: Callable[[Any], Iterator[str]]
) -> dict[str, Any]:
    try:
        if len(content) > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MiB")
        result = foreign.loads(content.decode("utf-8"))
        _validator(schema)(result)
        seconds_of(result["date"])
        if why := next(contradictions(result), None):
            raise ValueError(why)
    except ValueError as error:
        why = files.shortened(str(error))
        raise InputError(f"{where}: not what `xpulab {command}` writes: {why}; remove it, or run it again") from error
    return result


@cache
def _validator(schema: str) -> Callable[[Any], Any]:
    """Of a schema in data/schema, without what an earlier version did not write, and with what a later one may add."""

    def lenient(part: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in part.items() if (key, value) != ("additionalProperties", False)}
        return kept | {"required": [name for name in kept["required"] if name not in _LATER]} if "required" in kept else kept

    text = files.data("schema", schema).read_text(encoding="utf-8")
    return fastjsonschema.compile(json.loads(text, object_hook=lenient), use_default=False)


def _contradictions(result: Mapping[str, Any]) -> Iterator[str]:
    """What a result says that does not follow from its notebooks, or they from their checks."""
    notebooks, outcome, judges = result["notebooks"], result["outcome"], result.get("judges", "machine")
    yield from _repeated(notebooks)
    for notebook in notebooks:
        yield from (f"{notebook['name']} is {notebook['outcome']}, and {why}" for why in _wrong_in(notebook))
    outcomes = {notebook["outcome"] for notebook in notebooks}
    green = result["green"] if outcome == "running" else is_green_run(outcomes)
    if (
        result["green"] != green
        or green != {"passed": True, "failed": False, "unknown": False}.get(outcome, green)
        or ("partial" in outcomes and outcome in ("passed", "failed"))
        or ("skipped" in outcomes and result["device"] == "cpu")
        or (result.get("lost") and outcomes != {"missing"})
    ):
        said = f"{outcome} on {result['device']}, {'green' if result['green'] else 'not green'}"
        yield f"it is {said}{', with a lost accelerator' if result.get('lost') else ''}, and its notebooks {sorted(outcomes)}"
    if (outcome == "unknown") != bool(result.get("reason")):
        yield f"it is {outcome}, and its reason is {result.get('reason')}"
    if (judges == "rehearsal") != bool(result.get("stands_for")):
        yield f"it judges a {judges}, and stands for {result.get('stands_for') or 'nothing'}"
    counts = Counter(check["outcome"] for notebook in notebooks for check in notebook["checks"])
    if Counter(result.get("outcomes", counts)) != counts:
        yield "its outcomes are not those of its checks"


def _wrong_in(notebook: Mapping[str, Any]) -> Iterator[str]:
    """What of a notebook does not follow from its checks."""
    checks, outcome = notebook["checks"], notebook["outcome"]
    yield from _repeated(checks)
    compared = sum(check["outcome"] in COMPARED for check in checks)
    if (notebook["planned"], notebook["compared"]) != (len(checks), compared):
        yield f"{compared} of {len(checks)} checks compared something, not {notebook['compared']} of {notebook['planned']}"
    if outcome in GREEN_NOTEBOOKS and not compared:
        yield "nothing was compared"
    for check in checks:
        if (outcome in GREEN_NOTEBOOKS and check["outcome"] in RED) or (
            outcome in ("skipped", "missing") and check["outcome"] != outcome
        ):
            yield f"its check {check['name']} is {check['outcome']}"
        rows = worst([check["outcome"], *(row["outcome"] for row in check["rows"])])
        if rows != check["outcome"]:
            yield f"its check {check['name']} is {check['outcome']}, with a row that is {rows}"


def _contradictions_of_soak(soak: Mapping[str, Any]) -> Iterator[str]:
    """What a soak says that does not follow from its rounds and problems."""
    bad = [problem["round"] for problem in soak["problems"]]
    if soak["first_bad_round"] != min(bad, default=None) or max(bad, default=0) > soak["rounds"]:
        yield f"of {soak['rounds']} rounds {soak['first_bad_round']} is the first bad one, and problems are of {bad[:9]}"
    outcome = "failed" if bad else "passed" if soak["repeated"] else "nothing compared"
    if soak["outcome"] != outcome:
        yield f"it is {soak['outcome']}, with {len(bad)} problems and {soak['repeated']} checks that repeated"


def _repeated(parts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"{name} is there twice" for name, count in Counter(part["name"] for part in parts).items() if count > 1)


def content_of(path: Path) -> bytes:
    """The result.json in a folder, or that file, up to one byte too many. Raises InputError when it cannot be read."""
    file = _file(path)
    if not _is_there(file):
        raise InputError(f"{path}: holds no {RESULT}, no bundle and no folder of a run; `xpulab run --out {path}` makes one")
    try:
        with files.opened(file) as opened:
            return opened.read(LARGEST + 1)
    except InputError as error:
        raise InputError(f"{error}; remove it, or name another one") from error
    except OSError as error:  # of a disk or a network file system
        raise InputError(f"{file}: cannot be read: {error.strerror}; copy it to another disk") from error


def _file(path: Path) -> Path:
    """The result.json in a folder, else the path itself."""
    return path / RESULT if os.path.isdir(path) and path.name != RESULT else path


def _content_of_bundle(path: Path) -> tuple[str | None, bytes]:
    """The name of the node, where the manifest has one, and the content of result.json, compared with its checksum."""
    from xpulab.fleet import bundle  # not in a gate, which has a fraction of a second

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
