"""Known defects of the pinned releases: a check that fails because of one is reported as known, not as failed.

They are listed in data/known_issues.yaml. A listed check that passes is reported as fixed, so that an outdated entry is
noticed. What is expected of a device from reading alone is a prediction: a check that fails as expected is reported as
predicted, one that passes all the same as refuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from xpulab import files
from xpulab.devices import judged_as
from xpulab.records.environments import installed_version


@dataclass(frozen=True)
class KnownIssue:
    """One defect.

    id: a short name.
    check: the name of the check that fails because of it.
    versions: package name to version specifier, all of which must match ("paddle" means the installed Paddle wheel).
    devices: the devices that have it, of cpu, gpu, xpu, sim.
    cause: "software" for what stands in Python, in a binding or in a compiled program: every device runs this very code, so it
        counts as seen on all when it was measured on one. "kernel" for what stands in an operator's kernel or in a collective
        library, "branch" for software that does another thing on each device: those whose own was run, or read.
    symptom, workaround: sentences.
    reference: where it is documented, or "measured here".
    case: the row of the check, when the check has many; else None.
    when: of a check that is a grid the cases that may show the defect: by axis the labels of which a case has one; else empty.
        The case with the first labels that can go together, and the default of every other axis, always runs, and shows it.
    unseen: those of `devices` of which it is expected from reading their kernel or branch alone: nothing was run there.
    shows: a text in what a failing row measures or in why that is wrong, "" for any: another wrong value is not this defect.
    """

    id: str
    check: str
    versions: dict[str, str]
    devices: tuple[str, ...]
    symptom: str
    reference: str
    workaround: str
    cause: str = "software"
    case: str | None = None
    when: dict[str, list[str]] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    shows: str = ""

    def concerns(self, labels: Mapping[str, str]) -> bool:
        """Whether a case of a grid, with these labels by axis, is one of those with the defect."""
        return all(labels.get(axis) in wanted for axis, wanted in self.when.items())

    def applies(self, device: str) -> bool:
        """Whether the defect is one of `device`, and of the installed versions.

        In a rehearsal these are the defects of the device that is rehearsed, and those of the kernels that compute.
        """
        return bool(self._concerned(device)) and are_installed(self.versions)

    def is_seen(self, device: str) -> bool:
        """Whether the defect was seen on `device`, or on what computes there, and not only read."""
        return not self._concerned(device) <= {*self.unseen}

    def _concerned(self, device: str) -> set[str]:
        """The devices that have it of the one that is judged and, where it stands in what computes, the one that computes."""
        return {judged_as(device), *([] if self.cause == "software" else [device])} & {*self.devices}


def are_installed(versions: Mapping[str, str]) -> bool:
    """Whether all these packages are installed with versions that match their specifiers."""
    found = {package: installed_version(package) for package in versions}
    return all(
        (version := found[package]) is not None and SpecifierSet(wanted).contains(version, prereleases=True)
        for package, wanted in versions.items()
    )


def load(path: Path | None = None) -> tuple[KnownIssue, ...]:
    """The issues that the file lists; data/known_issues.yaml when no path is given.

    Raises InputError with file and line when it does not fit data/schema/known_issues.schema.json.
    """
    entries = files.load_yaml(path or files.data("known_issues.yaml"), files.data("schema", "known_issues.schema.json"))
    return tuple(KnownIssue(**with_tuples(entry)) for entry in entries)


def with_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an entry of a list, for a frozen class: tuples in the place of lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


@cache
def known_issue(check: str, device: str, case: str | None = None) -> KnownIssue | None:
    """The known issue for the check (or this row of it) on this device with the installed versions, or None."""
    found = (
        issue for issue in _listed() if (issue.check, issue.case) == (check, case) and not issue.when and issue.applies(device)
    )
    return next(found, None)


def known_issues_of_grid(check: str, device: str) -> tuple[KnownIssue, ...]:
    """The known issues that concern cases of this grid, on this device with the installed versions."""
    return tuple(issue for issue in _listed() if issue.check == check and issue.when and issue.applies(device))


@cache
def _listed() -> tuple[KnownIssue, ...]:
    """The list, loaded once in a process: reading and validating the file takes as long as a hundred comparisons."""
    return load()
