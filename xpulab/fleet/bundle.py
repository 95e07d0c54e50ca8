"""A bundle: one zip file with everything that a run knows of its machine, to send or to archive, without secrets.

manifest.json     what is in it: name, bytes and SHA-256 of each file, what was removed, the machine, when and by which version
run/...           the folder of the run: result.json, prove.json, reports, executed notebooks
machine/...       the diagnosis, raw outputs of the vendors' tools, versions, variables, kernel messages

manifest.json.sig who made it, when it was signed: the manifest's signature, and so that of every file
The digests show damage on the way. Without a signature, who can write the file can write its manifest too.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import jsonschema

from xpulab import __version__, files
from xpulab.errors import InputError
from xpulab.fleet import signature
from xpulab.fleet.redact import Redactor
from xpulab.records.node import node_name

SCHEMA = 1
MANIFEST = "manifest.json"
SIGNATURE = f"{MANIFEST}.sig"
OF_A_RUN_OR_SOAK = ("result.json", "soak.json", "soak.jsonl", "notebooks")
"""A folder that holds one of them is that of a run; only `notebooks` when the machine died."""

OF_A_RUN = (".json", ".jsonl", ".xml", ".html", ".ipynb", ".prom", ".txt", ".log")
"""Endings of what a run writes; other files in its folder are left out, and named in the manifest."""

LARGEST = 256 * 2**20
"""Bytes of one file: a larger one is left out when a bundle is made, and refused when it is read."""

LARGEST_SUM = 1024 * 2**20
MOST_FILES = 10_000
"""Of a bundle that is read, its files unpacked."""


@dataclass(frozen=True)
class Selection:
    """What a bundle takes: globs of names below run/, and below machine/."""

    run: tuple[str, ...]
    machine: tuple[str, ...]


EVERYTHING = Selection(("*",), ("*",))
SUMMARY = Selection(("result.json", "prove.json", "soak.json", "summary.txt"), ("doctor.json", "versions.json"))
"""Enough to compare a thousand machines; it cannot be judged again."""


@dataclass(frozen=True)
class Entry:
    """A file of a bundle. name: in the bundle. size: in bytes. sha256: hexadecimal. removed: how many secrets, by kind."""

    name: str
    size: int
    sha256: str
    removed: dict[str, int]


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds. left_out: files of the run's folder that are not in it, with the reason.

    xpulab: the version that made it. made: when, in local time with its offset from UTC. node: the machine of the run.
    about: the run in short: device, cards, card_models, processor, level, date, outcome, as far as result.json has them.
    notes: what is worth knowing, one sentence each.
    """

    entries: tuple[Entry, ...]
    left_out: dict[str, str]
    xpulab: str
    made: str
    node: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def removed(self) -> Counter[str]:
        """How many secrets were removed, by kind."""
        return sum((Counter(entry.removed) for entry in self.entries), Counter())


@dataclass(frozen=True)
class Collected:
    """A bundle that is not written yet. contents: by name in the bundle, in its order."""

    bundle: Bundle
    contents: dict[str, bytes] = field(repr=False)


def make(folder: Path, evidence: Iterable[tuple[str, str]], redactor: Redactor, out: Path) -> Bundle:
    """Write the bundle of a run's folder to the new file `out`, whole or not at all; arguments and errors as below."""
    collected = collect(folder, evidence, redactor)
    write(collected, out)
    return collected.bundle


def collect(
    folder: Path,
    evidence: Iterable[tuple[str, str]],
    redactor: Redactor,
    selection: Selection = EVERYTHING,
    notes: Iterable[str] = (),
) -> Collected:
    """What the bundle of a run's folder holds. evidence: names below machine/ and texts. notes: as in Bundle.

    Raises InputError when the folder holds no run.
    """
    if not any((folder / name).exists() for name in OF_A_RUN_OR_SOAK):
        raise InputError(f"{folder}: holds no result.json; name the folder that `xpulab run --out` wrote")
    left_out: dict[str, str] = {}
    of_machine = ((f"machine/{name}", text) for name, text in evidence if _matches(name, selection.machine))
    contents, entries = {}, []
    for name, text in [*_of_run(folder, selection, left_out), *of_machine]:
        redacted, removed = redactor.redact_file(name, text)
        contents[name] = redacted.encode("utf-8", "backslashreplace")
        digest = hashlib.sha256(contents[name]).hexdigest()
        entries.append(Entry(name, len(contents[name]), digest, dict(+removed)))
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    about = _about(contents.get("run/result.json", b"{}"))
    node = about.pop("node", None) or redactor.redact(node_name())[0]
    return Collected(Bundle(tuple(entries), left_out, __version__, made, node, about, tuple(notes)), contents)


def write(collected: Collected, out: Path, key: Path | None = None) -> None:
    """Write it to the new file `out`, whole or not at all. key: what signs it, as of signature.sign.

    Raises InputError when `out` exists or cannot be written, and when the key cannot sign.
    """
    refuse_existing(out)
    manifest = json.dumps({"schema": SCHEMA, **asdict(collected.bundle)}, indent=2).encode()
    signed = {SIGNATURE: signature.sign(manifest, key)} if key else {}
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {MANIFEST: manifest, **signed, **collected.contents}.items():
                archive.writestr(name, content)
        unfinished.replace(out)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}; name another file with --out") from error
    finally:
        unfinished.unlink(missing_ok=True)


def refuse_existing(out: Path) -> None:
    """Raises InputError for a file that exists, and for one in a folder that does not."""
    if out.exists():
        raise InputError(f"{out}: exists already; name another file with --out, or remove it")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: cannot be written: there is no folder {out.parent}; make it, or name another file with --out")


def read(path: Path, wanted: tuple[str, ...] = ("*",)) -> tuple[Bundle, dict[str, bytes]]:
    """The manifest of a bundle and those of its files whose names match a glob of `wanted`, each compared with its digest.

    Nothing is written. Raises InputError when the file is no bundle, is damaged, or holds what its manifest does not name.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            bundle = _manifest(path, archive)
            entries = [entry for entry in bundle.entries if _matches(entry.name, wanted)]
            return bundle, {entry.name: _content(path, archive, entry) for entry in entries}
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: is no bundle that can be read: {error}; `xpulab bundle` makes one") from error


def signed(path: Path) -> tuple[bytes, bytes | None]:
    """The bytes of the manifest, and its signature or None. To be called after `read`, which looks at all else."""
    with zipfile.ZipFile(path) as archive:
        has_one = SIGNATURE in archive.namelist()
        return archive.read(MANIFEST), archive.read(SIGNATURE) if has_one else None


def _of_run(folder: Path, selection: Selection, left_out: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The names below run/ and the texts of the run's files, in order; what is left out goes into left_out."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file() or not _matches(name, selection.run):
            continue
        if path.suffix not in OF_A_RUN:
            left_out[name] = "no report and no notebook"
        elif path.name.endswith(".source.ipynb"):
            left_out[name] = "its cells are those of the executed notebook"
        elif path.stat().st_size > LARGEST:
            left_out[name] = f"larger than {LARGEST >> 20} MiB"
        else:
            try:
                yield f"run/{name}", path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                left_out[name] = f"cannot be read: {error.strerror}"


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, each) for each in globs)


def _about(result: bytes) -> dict[str, Any]:
    """The run in short, from the redacted result.json; what it does not have is left out."""
    try:
        stored = json.loads(result)
        cards = [card["model"] for card in stored.get("card_facts", [])]
        machine = stored.get("machine", {})
        found = {name: stored.get(name) for name in ("node", "device", "cards", "level", "date", "outcome")}
        found |= {"card_models": cards or None, "processor": machine.get("processor"), "driver": machine.get("driver")}
    except (ValueError, AttributeError, TypeError, KeyError):
        return {}
    return {name: value for name, value in found.items() if value is not None}


def _manifest(path: Path, archive: zipfile.ZipFile) -> Bundle:
    """The manifest, after a look at the archive's own list: nothing is unpacked that it does not name, or that is too large."""
    sizes = {each.filename: each.file_size for each in archive.infolist()}
    if len(archive.infolist()) > MOST_FILES or sum(sizes.values()) > LARGEST_SUM:
        raise InputError(f"{path}: holds more than {MOST_FILES} files or {LARGEST_SUM >> 20} MiB: it is no bundle of one run")
    if sizes.get(MANIFEST, LARGEST + 1) > LARGEST:
        raise InputError(f"{path}: has no manifest that can be read; `xpulab bundle` makes one")
    if sizes.get(SIGNATURE, 0) > signature.LARGEST:
        raise InputError(f"{path}: {SIGNATURE} is no signature: it has {sizes[SIGNATURE]} bytes; ask for the file again")
    bundle = _bundle(path, archive.read(MANIFEST))
    names = [entry.name for entry in bundle.entries]
    if len(archive.infolist()) != len(sizes) or sorted(sizes.keys() - {MANIFEST, SIGNATURE}) != sorted(names):
        raise InputError(f"{path}: its files are not those that its manifest names; ask for it again")
    return bundle


def _bundle(path: Path, content: bytes) -> Bundle:
    schema = json.loads(files.data("schema", "bundle.schema.json").read_text(encoding="utf-8"))
    try:
        stored = json.loads(content)
        if isinstance(stored, dict) and stored.get("schema") != SCHEMA:
            raise InputError(f"{path}: was made by xpulab {stored.get('xpulab')}, whose bundles this version cannot read")
        jsonschema.Draft202012Validator(schema).validate(stored)
    except (ValueError, RecursionError, jsonschema.ValidationError) as error:
        said = getattr(error, "message", error)
        raise InputError(f"{path}: has no manifest that can be read: {said}; `xpulab bundle` makes one") from error
    entries = tuple(Entry(**entry) for entry in stored.pop("entries"))
    notes = tuple(stored.pop("notes", ()))
    return Bundle(entries, notes=notes, **{name: value for name, value in stored.items() if name != "schema"})


def _content(path: Path, archive: zipfile.ZipFile, entry: Entry) -> bytes:
    stored = archive.getinfo(entry.name)
    if stored.file_size != entry.size or entry.size > LARGEST or _leaves(entry.name):
        raise InputError(f"{path}: {entry.name} is not what its manifest says; ask for it again")
    if stored.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{path}: {entry.name} is compressed in a way that `xpulab bundle` does not use")
    content = archive.read(entry.name)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise InputError(f"{path}: {entry.name} is damaged: its digest is another one; copy the file again")
    return content


def _leaves(name: str) -> bool:
    """Whether a path would leave the folder that a bundle is unpacked to."""
    parts = PurePosixPath(name).parts
    return not parts or name.startswith("/") or ".." in parts or "\\" in name or parts[0] not in ("run", "machine")
