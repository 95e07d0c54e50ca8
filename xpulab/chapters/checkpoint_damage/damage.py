"""Damage one file of a copy of a checkpoint, in each of five ways, and see what loading says of it.

A case is (kind, name, how): the checkpoint <folder>/<kind>/checkpoint-2, the name of one of its files, a name of DAMAGES.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from xpulab.chapters.shared import processes
from xpulab.checks.digest import digest_of

Case = tuple[str, str, str]

UNDAMAGED = "undamaged"


def flip(path: Path, older: Path) -> None:
    """Flip one bit of the file, after three quarters of it."""
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 0x10
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "truncate": lambda path, older: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flip": flip,
    "delete": lambda path, older: path.unlink(),
    "swap": lambda path, older: shutil.copyfile(older, path),
    "empty": lambda path, older: path.write_bytes(b""),
}
"""By name what damages a file; older: the same file of an older checkpoint."""


@contextmanager
def copy_of(checkpoint: Path) -> Iterator[Path]:
    """A copy of a checkpoint, named checkpoint-2 whichever it is, for the time of the block."""
    with tempfile.TemporaryDirectory(dir=checkpoint.parent.parent) as parent:
        yield Path(shutil.copytree(checkpoint, Path(parent) / "checkpoint-2"))


@contextmanager
def damaged(folder: Path, case: Case, copy: Path) -> Iterator[bool]:
    """In the block one file of the copy is damaged; yields whether a byte of it differs."""
    kind, name, how = case
    good, older = (folder / kind / f"checkpoint-{at}" / name for at in (2, 1))
    DAMAGES[how](copy / name, older)
    try:
        yield not (copy / name).exists() or (copy / name).read_bytes() != good.read_bytes()
    finally:
        shutil.copyfile(good, copy / name)


def reactions(load: Callable[[str, Path], Any], folder: Path, files: Mapping[str, list[str]], device: str) -> dict[Case, str]:
    """How load(kind, checkpoint) reacts to each damage of each file: "names it", "error", "no effect", "SILENT" or "-".

    files: by kind the names of the files that are damaged in turn. "names it" is an error whose text has the name of the
    damaged file. "no effect": what was loaded does not differ. "SILENT": it differs, without an error. "-": no byte changed.
    Also (kind, "", "undamaged"): "no effect", or the error of loading the whole checkpoint.
    """
    cases = [(kind, name, how) for kind, names in files.items() for name in names for how in DAMAGES]
    cases += [(kind, "", UNDAMAGED) for kind in files]
    outcomes = processes.run_in_turn(partial(_outcome_of, load, folder), cases, device)
    found = dict(zip(cases, outcomes, strict=True))
    return {case: _reaction(outcome, found[case[0], "", UNDAMAGED], case[1]) for case, outcome in found.items()}


def _outcome_of(load: Callable[[str, Path], Any], folder: Path, case: Case) -> str | None:
    """What loading gives in a case; None when the damage changes nothing."""
    kind, _, how = case
    with copy_of(folder / kind / "checkpoint-2") as copy:
        if how == UNDAMAGED:
            return _outcome(load, kind, copy)
        with damaged(folder, case, copy) as differs:
            return _outcome(load, kind, copy) if differs else None


def makes(file: Path, load: Callable[[], Any]) -> bool:
    """Whether the call makes this file, also where it then raises: what is hidden in a pickle runs."""
    file.unlink(missing_ok=True)
    with contextlib.suppress(Exception):
        load()
    return file.exists()


def _outcome(load: Callable[[str, Path], Any], kind: str, checkpoint: Path) -> str:
    """A digest of all that loading gives, or "error: " and its text."""
    try:
        return digest_of(load(kind, checkpoint)) or "error: it gives something that has no bits"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"


def _reaction(outcome: str | None, undamaged: str, name: str) -> str:
    if outcome is None:
        return "-"
    if not outcome.startswith("error: "):
        return "no effect" if outcome == undamaged else "SILENT"
    return "names it" if name and name in outcome else "error"
