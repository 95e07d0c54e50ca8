"""The engine without nodes: what lies in a folder, from an earlier fleet run or copied there by other means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError
from xpulab.fleet.cluster.answer import LOST, SILENT, Answer
from xpulab.fleet.runs import find_sources

RECORD = "fleet.json"
"""What a fleet run writes beside the bundles."""


def answers_in(folder: Path) -> tuple[Answer, ...]:
    """The answers of a fleet run, silent nodes included; without its record an answer for each bundle or run in the folder.

    Raises InputError when the folder holds neither.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name the one that `xpulab fleet run --out` wrote, or one with bundles")
    recorded = {each.node: each for each in _recorded(folder)}
    known = {each.bundle for each in recorded.values()}
    sources = sorted(path for path in folder.glob("*.zip") if path.name not in known) if recorded else find_sources([folder])
    late = {path.stem: _late(recorded.get(path.stem), path, folder) for path in sources}
    return tuple({**recorded, **late}.values())


def _late(recorded: Answer | None, path: Path, folder: Path) -> Answer:
    """A bundle that came after its node was given up counts, and the node stays silent if it was."""
    gone = recorded.sentence if recorded and recorded.outcome in (SILENT, LOST) else ""
    return Answer(path.stem, "done", "", recorded.attempts if recorded else 1, bundle=str(path.relative_to(folder)), gone=gone)


def _recorded(folder: Path) -> list[Answer]:
    path = folder / RECORD
    if not path.exists():
        return []
    stored: Any = files.load_json(path, files.data("schema", "fleet.schema.json"))
    return [Answer(**node["answer"]) for node in stored["nodes"]]
