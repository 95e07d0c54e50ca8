"""A bundle: one zip file with everything that a run knows of its machine, to send or to archive, without secrets.

manifest.json     what is in it: name, bytes and SHA-256 of each file, what was removed, when it was made and by which version
run/...           the folder of the run: result.json, reports, executed notebooks
machine/...       the diagnosis, raw outputs of the vendors' tools, versions, variables, kernel messages
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from xpulab import __version__
from xpulab.errors import InputError
from xpulab.fleet.redact import Redactor

SCHEMA = 1
MANIFEST = "manifest.json"
OF_A_RUN = (".json", ".jsonl", ".xml", ".html", ".ipynb", ".prom", ".txt", ".log")
"""Endings of what a run writes; other files in its folder are left out, and named in the manifest."""

LARGEST = 256 * 2**20
"""Bytes of one file: a larger one is left out when a bundle is made, and refused when it is read."""


@dataclass(frozen=True)
class Entry:
    """A file of a bundle. name: in the bundle. size: in bytes. sha256: hexadecimal. removed: how many secrets, by kind."""

    name: str
    size: int
    sha256: str
    removed: dict[str, int]


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds. left_out: files of the run's folder that are not in it, with the reason."""

    entries: tuple[Entry, ...]
    left_out: dict[str, str]
    xpulab: str
    made: str

    @property
    def removed(self) -> Counter[str]:
        """How many secrets were removed, by kind."""
        return sum((Counter(entry.removed) for entry in self.entries), Counter())


def make(folder: Path, evidence: Iterable[tuple[str, str]], redactor: Redactor, out: Path) -> Bundle:
    """Write the bundle of a run's folder to the new file `out`, whole or not at all.

    evidence: names below machine/ and texts. Raises InputError when the folder holds no run, or `out` cannot be written.
    """
    if not (folder / "result.json").is_file():
        raise InputError(f"{folder}: holds no result.json; name the folder that `xpulab run --out` wrote")
    if out.exists():
        raise InputError(f"{out}: exists already; name another file with --out, or remove it")
    left_out: dict[str, str] = {}
    texts = [*_of_run(folder, left_out), *((f"machine/{name}", text) for name, text in evidence)]
    contents, entries = {}, []
    for name, text in texts:
        redacted, removed = redactor.redact(text)
        contents[name] = redacted.encode("utf-8", "backslashreplace")
        digest = hashlib.sha256(contents[name]).hexdigest()
        entries.append(Entry(name, len(contents[name]), digest, dict(+removed)))
    bundle = Bundle(tuple(entries), left_out, __version__, datetime.now().astimezone().isoformat(timespec="seconds"))
    _write(out, {MANIFEST: json.dumps({"schema": SCHEMA, **asdict(bundle)}, indent=2).encode(), **contents})
    return bundle


def _of_run(folder: Path, left_out: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The names below run/ and the texts of the run's files, in order; what is left out goes into left_out."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix not in OF_A_RUN:
            left_out[name] = "no report and no notebook"
        elif path.stat().st_size > LARGEST:
            left_out[name] = f"larger than {LARGEST >> 20} MiB"
        else:
            try:
                yield f"run/{name}", path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                left_out[name] = f"cannot be read: {error.strerror}"


def _write(out: Path, contents: dict[str, bytes]) -> None:
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        unfinished.replace(out)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InputError(f"{out}: cannot be written: {error.strerror}; name another file with --out") from error


def read(path: Path) -> tuple[Bundle, dict[str, bytes]]:
    """The manifest of a bundle and its files by name, each compared with its digest.

    Nothing is written. Raises InputError when the file is no bundle, is damaged, or holds what its manifest does not name.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
            bundle = _manifest(path, archive.read(MANIFEST) if sizes.get(MANIFEST, LARGEST + 1) <= LARGEST else b"")
            named = {entry.name: entry for entry in bundle.entries}
            if len(archive.infolist()) != len(sizes) or sizes.keys() - {MANIFEST} != named.keys():
                raise InputError(f"{path}: its files are not those that its manifest names; ask for it again")
            contents = {}
            for name, entry in named.items():
                if sizes[name] != entry.size or entry.size > LARGEST or _leaves(name):
                    raise InputError(f"{path}: {name} is not what its manifest says; ask for it again")
                contents[name] = archive.read(name)
                if hashlib.sha256(contents[name]).hexdigest() != entry.sha256:
                    raise InputError(f"{path}: {name} is damaged: its digest is another one; copy the file again")
    except (OSError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{path}: is no bundle that can be read: {error}; `xpulab bundle` makes one") from error
    return bundle, contents


def _manifest(path: Path, content: bytes) -> Bundle:
    try:
        stored = json.loads(content)
        if stored.pop("schema") != SCHEMA:
            raise InputError(f"{path}: was made by xpulab {stored.get('xpulab')}, whose bundles this version cannot read")
        entries = tuple(Entry(**entry) for entry in stored.pop("entries"))
        return Bundle(entries, **stored)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: has no manifest that can be read: {error!r}; `xpulab bundle` makes one") from error


def _leaves(name: str) -> bool:
    """Whether a path would leave the folder that a bundle is unpacked to."""
    parts = PurePosixPath(name).parts
    return not parts or name.startswith("/") or ".." in parts or "\\" in name or parts[0] not in ("run", "machine")
