"""One thing that the doctor examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xpulab.doctor.remedies import by_id, remedy_on
from xpulab.messages import N_, padded, shown, width

_VERDICTS = (N_("ok"), N_("warn"), N_("wrong"), N_("unknown"), N_("missing"))


@dataclass(frozen=True)
class Finding:
    """One thing that was examined.

    id: name of what was examined, lower case, joined by hyphens
    verdict: "ok"; "warn" the device is usable; "wrong" it is not; "unknown" it could not be determined
    seen: one sentence
    remedy: a command or a sentence, None when there is nothing to fix
    cause: why it happens, None when the finding says it itself
    known: id of the row in data/remedies.yaml that has cause and remedy, None when there is none
    """

    id: str
    verdict: Literal["ok", "warn", "wrong", "unknown"]
    seen: str
    remedy: str | None = None
    cause: str | None = None
    known: str | None = None


def known_finding(id: str, verdict: Literal["warn", "wrong", "unknown"], seen: str, known: str, device: str = "cpu") -> Finding:
    """A finding whose cause and remedy are those of a row of data/remedies.yaml, with the commands for the device."""
    row = by_id(known)
    return Finding(id, verdict, seen, remedy_on(row, device), row.cause, row.id)


def format_verdict(verdict: str) -> str:
    """The verdict of a finding or a version in the chosen language, in a column that has room for each."""
    return padded(shown(verdict), 1 + max(width(shown(each)) for each in _VERDICTS))
