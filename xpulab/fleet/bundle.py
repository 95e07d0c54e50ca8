"""A bundle: one zip file with everything that a run knows of its machine, to send or to archive, without secrets.

manifest.json     what is in it: name, bytes and SHA-256 of each file, what was removed, the machine, when and by which version
run/...           the folder of the run: result.json, prove.json, reports, executed notebooks
machine/...       the diagnosis, raw outputs of the vendors' tools, versions, variables, kernel messages

The checksums show damage on the way. Who can write the file can write its manifest too: docs/evidence.md shows how to sign it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import jsonschema

from xpulab import __version__, files
from xpulab.devices import DEVICES
from xpulab.errors import InputError
from xpulab.fleet import evidence, foreign, redact
from xpulab.messages import one_line
from xpulab.records.origin import node_name

SCHEMA = 2
MANIFEST = "manifest.json"
OF_A_RUN_OR_SOAK = ("result.json", "soak.json", "soak.jsonl", "notebooks")
"""A folder that holds one of them is that of a run; only `notebooks` when the machine died."""

OF_A_RUN = (".json", ".jsonl", ".xml", ".html", ".ipynb", ".prom", ".txt", ".log")
"""Endings of what a run writes; other files in its folder are left out, and named in the manifest."""

LARGEST = 64 * 2**20
LARGEST_SUM = 256 * 2**20
MOST_FILES = 10_000
"""Bytes of one file and of all, unpacked, and their number: what is more is left out of a bundle, and refused in one."""

_SHOWN = 1000
"""How many of the files that are left out are named."""

LARGEST_MANIFEST = 4 * 2**20
"""Bytes of the manifest, and of the archive's own list of its files."""
_NO_NODE, _NO_FILE = re.compile(r"[^\w.-]+", re.ASCII), re.compile(r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What is not in the name of a node, and of a file: data/schema/bundle.schema.json."""


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
    notes: what is worth knowing, one sentence each.
    """

    entries: tuple[Entry, ...]
    left_out: dict[str, str]
    xpulab: str
    made: str
    node: str | None = None
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------------ make one


def collect(folder: Path) -> tuple[Bundle, dict[str, bytes]]:
    """The bundle of a run's folder and its files by name, with evidence of this machine when the run was made here.

    Raises InputError when the folder holds no run.
    """
    if not any(os.path.exists(folder / name) for name in OF_A_RUN_OR_SOAK):
        raise InputError(f"{folder}: holds no result.json; name the folder that `xpulab run --out` wrote")
    redactor, here, notes = redact.of_this_process(), node_name(), []
    node, device = here, "auto"
    if os.path.exists(folder / "result.json"):  # a soak has none
        try:
            with files.opened(folder / "result.json") as file:
                result = foreign.loads(file.read(LARGEST).decode("utf-8"))
            node = result["node"] if isinstance(result.get("node"), str) else here
            device = result["device"] if result.get("device") in DEVICES else "auto"
        except (InputError, OSError, ValueError, AttributeError) as error:  # of a full disk, or a machine that died
            notes.append(f"result.json cannot be read: {error}")
    left_out: dict[str, str] = {}
    texts = _of_run(folder, left_out)
    if node == here:
        texts = chain(texts, ((f"machine/{name}", text) for name, text in evidence.evidence(os.environ, device)))
    else:
        notes.append(f"the run was made on {node}, the bundle on {here}: nothing of this machine is in it")
    contents: dict[str, bytes] = {}
    entries: list[Entry] = []
    room = LARGEST_SUM
    for name, text in texts:
        redacted, removed = redactor.redact_file(name, text)
        content = redacted.encode("utf-8", "backslashreplace")
        stored = _NO_FILE.sub("_", redactor.redact(name)[0])
        if len(content) > min(LARGEST, room) or len(entries) == MOST_FILES or stored in contents:
            left_out[name] = f"a bundle has at most {MOST_FILES} files, all with other names, and {LARGEST_SUM >> 20} MiB"
            continue
        contents[stored], room = content, room - len(content)
        entries.append(Entry(stored, len(content), hashlib.sha256(content).hexdigest(), dict(+removed)))
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    shown = {redactor.redact(name)[0]: reason for name, reason in sorted(left_out.items())[:_SHOWN]}
    notes = [redactor.redact(note)[0] for note in notes]
    named = _NO_NODE.sub("_", redactor.redact(node)[0]) or None
    return Bundle(tuple(entries), shown, __version__, made, named, tuple(notes)), contents


def write(bundle: Bundle, contents: Mapping[str, bytes], out: Path) -> None:
    """Write what was collected to a new file, whole or not at all. Raises InputError when it exists or cannot be written."""
    refuse_existing(out)
    manifest = json.dumps({"schema": SCHEMA, **asdict(bundle)}, indent=2).encode()
    try:
        with files.replacing(out) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {MANIFEST: manifest, **contents}.items():
                archive.writestr(name, content)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}; name another file with --out") from error


def refuse_existing(out: Path) -> None:
    """Raises InputError for a file that exists, and for one in a folder that does not."""
    if out.exists():
        raise InputError(f"{out}: exists already; name another file with --out, or remove it")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: cannot be written: there is no folder {out.parent}; make it, or name another file with --out")


def _of_run(folder: Path, left_out: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The names below run/ and the texts of the run's files, in order; what is left out goes into left_out."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        try:
            if path.is_symlink() or not path.is_file():
                continue
            if path.suffix not in OF_A_RUN:
                left_out[name] = "no report and no notebook"
            elif path.name.endswith(".source.ipynb"):
                left_out[name] = "its cells are those of the executed notebook"
            elif path.stat().st_size > LARGEST:
                left_out[name] = f"larger than {LARGEST >> 20} MiB"
            else:
                yield f"run/{name}", path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            left_out[name] = f"cannot be read: {error.strerror}"


# ------------------------------------------------------------------------------------------------------------------ read one


def read(path: Path, wanted: str = "*", kept: str = "*") -> tuple[Bundle, dict[str, bytes]]:
    """The manifest of a bundle, and its files whose names match the glob `kept`: what is returned is what was verified.

    Compared with their checksums are the files that match `wanted`. The file is opened once, and nothing is written.
    Raises InputError when it is no bundle, is damaged, or holds what its manifest does not name.
    """
    try:
        with files.opened(path) as file:
            _require_short_list(path, file)
            with zipfile.ZipFile(file) as archive:
                bundle = _manifest(path, archive)
                contents: dict[str, bytes] = {}
                for entry in bundle.entries:
                    if fnmatchcase(entry.name, wanted):
                        content = _content(path, archive, entry)
                        contents |= {entry.name: content} if fnmatchcase(entry.name, kept) else {}
                return bundle, contents
    except InputError:
        raise
    except Exception as error:  # of many types: zipfile reads what somebody else wrote
        raise InputError(f"{path}: is no bundle that can be read: {error}; `xpulab bundle` makes one") from error


def _require_short_list(path: Path, file: BinaryIO) -> None:
    """Raise InputError unless the archive's own list of files, which zipfile reads as a whole, is that of a bundle.

    Nothing may follow the 22 bytes that end an archive, nor a record of one of more than 4 GiB be before them.
    """
    file.seek(-min(42, file.seek(0, os.SEEK_END)), os.SEEK_END)
    end = file.read()
    signature, size, comment = struct.unpack("<4s8xI4xH", end[-22:].rjust(22, b"\0"))
    if (signature, comment) != (b"PK\5\6", 0) or size > LARGEST_MANIFEST or end[:-22].startswith(b"PK\6\7"):
        raise InputError(f"{path}: is no bundle that can be read; `xpulab bundle` makes one")


def _manifest(path: Path, archive: zipfile.ZipFile) -> Bundle:
    """The manifest, after a look at the archive's own list: nothing is unpacked that it does not name, or that is too large."""
    sizes = {each.filename: each.file_size for each in archive.infolist()}
    if len(archive.infolist()) > MOST_FILES + 1 or sum(sizes.values()) > LARGEST_SUM + LARGEST_MANIFEST:
        raise InputError(f"{path}: holds more than {MOST_FILES} files or {LARGEST_SUM >> 20} MiB: it is no bundle of one run")
    if {each.compress_type for each in archive.infolist()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise InputError(f"{path}: is compressed in a way that `xpulab bundle` does not use")
    if sizes.get(MANIFEST, LARGEST) > LARGEST_MANIFEST:
        raise InputError(f"{path}: has no manifest that can be read; `xpulab bundle` makes one")
    schema = json.loads(files.data("schema", "bundle.schema.json").read_text(encoding="utf-8"))
    try:
        stored = foreign.loads(_unpacked(archive, MANIFEST).decode())
        if isinstance(stored, dict) and stored.get("schema") != SCHEMA:
            raise InputError(f"{path}: was made by xpulab {stored.get('xpulab')}, whose bundles this version cannot read")
        for violation in jsonschema.Draft202012Validator(schema).iter_errors(stored):  # the first one: they may be millions
            raise ValueError(files.shortened(violation.message))
    except (ValueError, RecursionError) as error:  # the message quotes what may be nested
        raise InputError(f"{path}: has no manifest that can be read: {error}; `xpulab bundle` makes one") from error
    del stored["schema"]
    entries = tuple(Entry(**each) for each in stored.pop("entries"))
    bundle = Bundle(entries, notes=tuple(stored.pop("notes", ())), **stored)
    names = [entry.name for entry in bundle.entries]
    if len(archive.infolist()) != len(sizes) or sorted(sizes.keys() - {MANIFEST}) != sorted(names):
        raise InputError(f"{path}: its files are not those that its manifest names; ask for it again")
    return bundle


def _content(path: Path, archive: zipfile.ZipFile, entry: Entry) -> bytes:
    stored = archive.getinfo(entry.name)
    if stat.S_ISLNK(stored.external_attr >> 16) or stored.file_size != entry.size or entry.size > LARGEST:
        raise InputError(f"{path}: {entry.name} is not what its manifest says; ask for it again")
    content = _unpacked(archive, entry.name)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise InputError(f"{path}: {entry.name} is damaged: its checksum is another one; copy the file again")
    return content


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of the archive; of one that is larger than it says no more than that is unpacked."""
    with archive.open(name) as file:
        return file.read(archive.getinfo(name).file_size + 1)


# ------------------------------------------------------------------------------------------------------------------- show one


def format_list(bundle: Bundle) -> str:
    """All files with their bytes and what was removed from each, what was left out, and notes."""
    lines = []
    for entry in bundle.entries:
        removed = f"  (removed: {_counts(entry.removed)})" if entry.removed else ""
        lines.append(f"{entry.size:>10}  {entry.name}{removed}")
    lines += [f"  left out  {name}: {reason}" for name, reason in bundle.left_out.items()]
    lines += [f"      note  {note}" for note in bundle.notes]
    total = sum(entry.size for entry in bundle.entries)
    return "\n".join(map(one_line, [*lines, f"{total:>10}  {len(bundle.entries)} files"]))


def format_written(bundle: Bundle, out: Path) -> str:
    """The file's name and size, what was removed, and how to read it."""
    removed = _counts(sum((Counter(entry.removed) for entry in bundle.entries), Counter())) or "nothing"
    mib = out.stat().st_size / 2**20
    again = f"xpulab bundle {shlex.quote(str(out))} --list"
    return f"{out}: {mib:.1f} MiB, removed: {removed}; read it before you send it: unzip it, or {again}"


def _counts(removed: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count} times" if count > 1 else kind for kind, count in sorted(removed.items()))
