"""What came back from the nodes of a fleet run, and how it is read again from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError
from xpulab.fleet.cluster.messages import ENDED
from xpulab.fleet.runs import find_sources
from xpulab.messages import N_

RECORD = "fleet.json"
"""What a fleet run writes beside the bundles."""

LEFT_OUT, LOST, SILENT, WAITING, CANCELLED = N_("left out"), N_("lost"), N_("silent"), N_("waiting"), N_("cancelled")
OUTCOMES = (*ENDED, LEFT_OUT, LOST, SILENT, WAITING, CANCELLED)
"""How a node's part can end: what a task says itself (ENDED), and what is seen from outside.

left out: drained or down from the beginning. lost: the task ended without a message. silent: the node never answered, or
stopped answering. waiting: it never got a turn. cancelled: the fleet run was interrupted first.
"""


@dataclass(frozen=True)
class Answer:
    """node: its name. outcome: of OUTCOMES. sentence: what was wrong, "" when nothing was.

    attempts: how often the task was started. seconds: how long the last one took, from its start to its end.
    bundle: the name of the bundle's file, None when there is none.
    gone: what the scheduler says of a node that delivered and stopped answering afterwards; "" for others.
    """

    node: str
    outcome: str
    sentence: str
    attempts: int = 0
    seconds: float = 0.0
    bundle: str | None = None
    gone: str = ""


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
