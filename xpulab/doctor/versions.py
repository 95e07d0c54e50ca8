"""Compares installed versions with the supported ones: data/supported_versions.yaml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from platform import python_version
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from xpulab import files
from xpulab.devices import wheel_device
from xpulab.doctor.cards import Reading
from xpulab.errors import InputError
from xpulab.records.environments import installed_frameworks, installed_version

Verdict = Literal["ok", "warn", "wrong", "unknown", "missing"]


@dataclass(frozen=True)
class Supported:
    """One row of data/supported_versions.yaml.

    what: a distribution's name, "python", "XPU driver" or "SBL firmware"
    kind: "framework" (the wheel that provides paddle), "package", "python", "driver" or "firmware"
    devices: of "cpu", "gpu", "xpu": where the row applies
    wanted: version specifier of the supported versions, ">=1.48"
    tolerated: specifier of the versions that only cause a warning; None when there are none
    remedy: the command that fixes it
    why, source: the reason, and where it was read or measured
    """

    what: str
    kind: str
    devices: tuple[str, ...]
    wanted: str
    remedy: str
    why: str
    source: str
    tolerated: str | None = None


@dataclass(frozen=True)
class VersionRow:
    """One version with its verdict.

    found: the version as installed or reported; None when there is none
    wanted: version specifier of the supported versions
    verdict: "ok"; "warn" tolerated; "wrong"; "unknown" the version cannot be determined or compared; "missing" the
        distribution is not installed
    remedy: the command that fixes it, None when there is nothing to fix
    """

    what: str
    found: str | None
    wanted: str
    verdict: Verdict
    remedy: str | None


class SeveralFrameworks(InputError):
    """More than one installed distribution provides the package paddle: the last one has overwritten the others.

    seen: which. commands: the two that fix it, in order.
    """

    def __init__(self, found: Sequence[str], device: str) -> None:
        self.seen = f"{' and '.join(found)} are installed together and have overwritten each other's package paddle"
        self.commands = (f"python -m pip uninstall --yes {' '.join(found)}", framework_row(device).remedy)
        super().__init__("\n  ".join([f"{self.seen}. Remove all, then install the one for {device}:", *self.commands]))


def version_rows(device: str, xpu_smi: Reading) -> tuple[VersionRow, ...]:
    """Every version that matters on device ("cpu", "gpu", "xpu", "sim"), with its verdict.

    xpu_smi: the source of the driver and firmware versions
    """
    return tuple(_judged(row, xpu_smi) for row in supported_versions() if wheel_device(device) in row.devices)


def require_one_framework(device: str) -> None:
    """Raises SeveralFrameworks, with the two commands that fix it, when more than one framework is installed."""
    found = installed_frameworks()
    if len(found) > 1:
        raise SeveralFrameworks(tuple(found), device)


def framework_row(device: str) -> Supported:
    """The wheel that provides paddle on device, its version, and the command that installs it."""
    return next(row for row in supported_versions() if row.kind == "framework" and wheel_device(device) in row.devices)


@cache
def supported_versions() -> tuple[Supported, ...]:
    """All rows of data/supported_versions.yaml. Raises InputError with file and line when it does not fit its schema."""
    rows = files.load_yaml(files.data("supported_versions.yaml"), files.data("schema", "supported_versions.schema.json"))
    return tuple(Supported(**{**row, "devices": tuple(row["devices"])}) for row in rows)


def driver_version(text: str | None) -> str | None:
    """The text if it is a version of an XPU driver, which has four numbers; None for others that occur (515.58, N/A)."""
    return text if text and re.fullmatch(r"\d+(\.\d+){3}", text) else None


def lowest_firmware(xpu_smi: Reading) -> str | None:
    """The lowest SBL version of the KL3 cards; None when no card reports one that can be compared."""
    stated = [card.firmware for card in xpu_smi.cards if card.generation == "KL3" and card.firmware]
    comparable = [text for text in stated if re.fullmatch(r"\d+(\.\d+)+", text)]
    return min(comparable, key=Version, default=None)


def _judged(row: Supported, xpu_smi: Reading) -> VersionRow:
    found = _found_version(row, xpu_smi)
    verdict = _judge(row, found)
    shown = xpu_smi.driver if row.kind == "driver" else found
    return VersionRow(row.what, shown, row.wanted, verdict, None if verdict == "ok" else _remedy(row))


def _found_version(row: Supported, xpu_smi: Reading) -> str | None:
    if row.kind == "python":
        return python_version()
    if row.kind == "driver":
        return driver_version(xpu_smi.driver)
    if row.kind == "firmware":
        return lowest_firmware(xpu_smi)
    return installed_version(row.what)


def _judge(row: Supported, found: str | None) -> Verdict:
    if found is None:
        return "missing" if row.kind in ("framework", "package") else "unknown"
    try:
        version = Version(found)
    except InvalidVersion:
        return "unknown"
    if SpecifierSet(row.wanted).contains(version, prereleases=True):
        return "ok"
    if row.tolerated is not None and SpecifierSet(row.tolerated).contains(version, prereleases=True):
        return "warn"
    return "wrong"


def _remedy(row: Supported) -> str:
    """The row's command. For a framework, the other installed frameworks are uninstalled first."""
    others = [name for name in installed_frameworks() if name != row.what] if row.kind == "framework" else []
    return f"python -m pip uninstall --yes {' '.join(others)} && {row.remedy}" if others else row.remedy
