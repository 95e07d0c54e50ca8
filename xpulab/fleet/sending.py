"""From the folder of a run to the file that is sent: what it holds, and the list that its owner reads first."""

from __future__ import annotations

import json
import os
import pwd
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.fleet import bundle, evidence
from xpulab.fleet.bundle import Bundle, Collected, Selection
from xpulab.fleet.redact import Redactor
from xpulab.records.node import node_name

ELSEWHERE = "the run was made on {run}, the bundle on {here}: nothing of this machine is in it"


def collect(folder: Path, selection: Selection) -> Collected:
    """What the bundle of a run holds, with evidence of this machine when the run was made here.

    Raises InputError when the folder holds no run.
    """
    here, notes = node_name(), []
    try:
        result = _result(folder)
    except (OSError, ValueError) as error:  # of a full disk, or a machine that died
        result, notes = {}, [f"result.json cannot be read: {error}"]
    of_machine: Iterator[tuple[str, str]] = iter(())
    if (there := result.get("node", here)) != here:
        notes.append(ELSEWHERE.format(run=there, here=here))
    else:
        wanted = evidence.in_short if selection == bundle.SUMMARY else evidence.evidence
        of_machine = wanted(os.environ, result.get("device", "auto"))
    return bundle.collect(folder, of_machine, redactor(), selection, notes)


def redactor() -> Redactor:
    """Removes the secrets of this process, its user and its home folder."""
    try:
        account = pwd.getpwuid(os.getuid())
        return Redactor.of(os.environ, account.pw_name, account.pw_dir, suite_words())
    except KeyError:  # a container, whose user has a number only
        return Redactor.of(os.environ, words=suite_words())


@cache
def suite_words() -> frozenset[str]:
    """All words of the committed notebooks: what they show on every machine is no secret."""
    words: set[str] = set()
    for path in files.NOTEBOOKS.glob("*.ipynb"):
        for text in _strings(json.loads(path.read_text(encoding="utf-8"))):
            words.update(re.findall(r"[\w.-]*\w", text))
            words.update(re.findall(r"\w+", text))
    return frozenset(words)


def format_list(made: Bundle) -> str:
    """All files with their bytes and what was removed from each, what was left out, and notes."""
    lines = [f"{entry.size:>10}  {entry.name}{_removed(Counter(entry.removed))}" for entry in made.entries]
    lines += [f"  left out  {name}: {reason}" for name, reason in made.left_out.items()]
    lines += [f"      note  {note}" for note in made.notes]
    total = sum(entry.size for entry in made.entries)
    return "\n".join([*lines, f"{total:>10}  {len(made.entries)} files", format_removed(made)])


def format_removed(made: Bundle) -> str:
    """What was removed from all files, in one line."""
    return f"removed: {_counts(made.removed) or 'nothing'}"


def format_written(out: Path) -> str:
    """The file's name and size, and how to read it."""
    size = out.stat().st_size
    return f"{out}: {size} bytes ({size / 2**20:.1f} MiB); read it before you send it: unzip it, or xpulab bundle {out} --list"


def _result(folder: Path) -> dict[str, Any]:
    """result.json of a run; nothing of a soak. Raises OSError, or ValueError, when it cannot be read."""
    path = folder / "result.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not isinstance(stored, dict):
        raise ValueError("it is no JSON object")
    return stored


def _strings(value: Any) -> Iterator[str]:
    """All strings of a notebook but pictures."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if not key.startswith("image/"):
                yield key
                yield from _strings(each)


def _removed(removed: Counter[str]) -> str:
    return f"  (removed: {_counts(removed)})" if removed else ""


def _counts(removed: Counter[str]) -> str:
    return ", ".join(f"{kind} {count} times" if count > 1 else kind for kind, count in sorted(removed.items()))
