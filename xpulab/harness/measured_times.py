"""What each chapter took on this machine: kept in the user's cache, so that the next run knows which one takes longest.

The file is $XDG_CACHE_HOME/xpulab/times/<host>.json, by default below ~/.cache. It only makes runs faster: one that is damaged
or cannot be written is ignored. Of two runs that end at once, one may not be in it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.harness.plan import Plan

_UNKNOWN_BYTES = 3 << 29
"""The most memory of a notebook that was not measured: 1.5 GiB, which the kernels of few chapters reach."""

_BYTES_A_RANK = 1 << 29
"""What a rank takes beyond what it shares with the fork server, at most."""


@dataclass(frozen=True)
class Measured:
    """One chapter at one level on one device. seconds: from its kernel's start to its end. peak_bytes: of its kernel."""

    seconds: float
    peak_bytes: int


class MeasuredTimes:
    """The times on this machine of one device and level. path: the file, by default that of this user and host."""

    def __init__(self, device: str, level: str, path: Path | None = None) -> None:
        self._key, self._path = f"{device} {level}", path or default_path()
        self._known = _entries(_read(self._path).get(self._key))

    def seconds(self, plan: Plan) -> float:
        """How long it will take: what was measured, else what its author planned."""
        known = self._of(plan)
        return known.seconds if known else plan.expected_seconds

    def peak_bytes(self, plan: Plan) -> int:
        """The most memory that it will take, its ranks included."""
        known = self._of(plan)
        return (known.peak_bytes if known else _UNKNOWN_BYTES) + (plan.cards - 1) * _BYTES_A_RANK

    def note(self, plan: Plan, seconds: float, peak_bytes: int) -> None:
        """It has run to its end. Half of what was known stays in what is kept: a run beside other work counts little."""
        if not _is_kept(plan):
            return
        known = self._known.get(plan.name)
        new = Measured(seconds if known is None else (known.seconds + seconds) / 2, peak_bytes or _UNKNOWN_BYTES)
        self._known[plan.name] = new
        with contextlib.suppress(OSError):
            _merge(self._path, self._key, plan.name, new)

    def _of(self, plan: Plan) -> Measured | None:
        return self._known.get(plan.name) if _is_kept(plan) else None


def default_path() -> Path:
    """Where the times of this user on this machine are: home folders may be shared by many."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "xpulab" / "times" / f"{platform.node() or 'host'}.json"


def _is_kept(plan: Plan) -> bool:
    """Chapters with all sections of their level; of others neither name nor time says anything about the next run."""
    return not plan.partial and plan.path.parent == files.NOTEBOOKS


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _entries(stored: object) -> dict[str, Measured]:
    """Those that make sense."""
    known = {}
    for name, entry in stored.items() if isinstance(stored, dict) else ():
        with contextlib.suppress(TypeError, ValueError, KeyError, OverflowError):
            seconds, peak = float(entry["seconds"]), int(entry["peak_bytes"])
            if math.isfinite(seconds) and seconds > 0 and peak > 0:
                known[files.present_name(name)] = Measured(seconds, peak)
    return known


def _merge(path: Path, key: str, name: str, new: Measured) -> None:
    """Replace one entry of the file as it is now: another run may have written meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    present = _read(path)
    entries = {known: asdict(measured) for known, measured in _entries(present.get(key)).items()}
    text = json.dumps({**present, key: {**entries, name: asdict(new)}}, indent=1, sort_keys=True) + "\n"
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
