"""The hosts of a cluster side by side: which are wrong, and which are not like most, or not like a golden one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError

MAJORITY_OF = 3
"""So few hosts at least must have a fact for a majority."""
PASSING, FAILING = "passing_nodes.txt", "failing_nodes.txt"
"""A name a line; `srun --exclude=FILE` reads a file whose path has a slash."""


@dataclass(frozen=True)
class Drift:
    """A fact of a host that is not as expected. expected: of most hosts, or of the golden one; "" where a host has it alone."""

    node: str
    fact: str
    value: str
    expected: str


@dataclass(frozen=True)
class Hosts:
    """The hosts, compared. reports: of `xpulab doctor --host --json`, by node. undecided: facts without a majority."""

    reports: dict[str, dict[str, Any]]
    expected_of: str
    drifts: tuple[Drift, ...]
    undecided: dict[str, dict[str, int]]

    @property
    def failing(self) -> tuple[str, ...]:
        """The nodes that are wrong, or have a fact that is not as expected."""
        drifting = {drift.node for drift in self.drifts}
        return tuple(node for node, report in self.reports.items() if report["outcome"] == "wrong" or node in drifting)

    @property
    def passing(self) -> tuple[str, ...]:
        """All others."""
        return tuple(node for node in self.reports if node not in self.failing)


def compare_hosts(paths: Sequence[Path], golden: Path | None = None) -> Hosts:
    """Compare reports. paths: files, or folders of .json files. golden: the report of a host that is right.

    Raises InputError for what is no report, for two of one host, and for none.
    """
    reports: dict[str, dict[str, Any]] = {}
    for path in _files(paths):
        report = _read(path)
        if report["node"] in reports:
            raise InputError(f"{path}: a second report of host {report['node']}; keep the newer one")
        reports[report["node"]] = report
    if not reports:
        raise InputError(
            f"{', '.join(map(str, paths))}: no .json file; run on each host: xpulab doctor --host --json > FOLDER/NAME.json"
        )
    reports = dict(sorted(reports.items()))
    if golden is not None:
        return Hosts(reports, str(golden), tuple(_drifts(reports, _read(golden)["facts"])), {})
    expected, undecided = _majority(reports)
    return Hosts(reports, "most hosts", tuple(_drifts(reports, expected)), undecided)


def write_nodes(hosts: Hosts, folder: Path) -> tuple[Path, Path]:
    """Write the lists of passing and failing nodes; returns their paths. Raises InputError when that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, nodes in ((PASSING, hosts.passing), (FAILING, hosts.failing)):
            (folder / name).write_text("".join(f"{node}\n" for node in nodes), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; choose another folder with --out") from error
    return folder / PASSING, folder / FAILING


def format_hosts(hosts: Hosts) -> str:
    """For people: each failing host with what is wrong and what differs, then facts without a majority."""
    lines = [f"{len(hosts.failing)} of {len(hosts.reports)} hosts fail"]
    for node in hosts.failing:
        lines.append(f"\n{node}")
        for finding in hosts.reports[node]["findings"]:
            if finding["verdict"] == "wrong":
                lines += [f"  wrong    {finding['id']}: {finding['seen']}", f"           fix: {finding['remedy']}"]
        for drift in hosts.drifts:
            if drift.node == node:
                lines.append(
                    f"  differs  {drift.fact}: {drift.value or 'none'}; {hosts.expected_of}: {drift.expected or 'none'}"
                )
    for fact, counts in hosts.undecided.items():
        shown = ", ".join(f"{value or 'none'} ({count} hosts)" for value, count in counts.items())
        lines.append(f"\nno majority for {fact}: {shown}; name a host that is right with --golden")
    return "\n".join(lines)


def _files(paths: Sequence[Path]) -> list[Path]:
    return [each for path in paths for each in (sorted(path.glob("*.json")) if path.is_dir() else [path])]


def _read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = files.load_json(path, files.data("schema", "host.schema.json"))
    return report


def _majority(reports: dict[str, dict[str, Any]]) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """By fact the value of more than half of the hosts; and, of the other facts, how many hosts have each value."""
    expected, undecided = {}, {}
    for fact in dict.fromkeys(fact for report in reports.values() for fact in report["facts"]):
        counts = Counter(report["facts"].get(fact, "") for report in reports.values())
        value, most = counts.most_common(1)[0]
        if len(counts) == 1 or (len(reports) >= MAJORITY_OF and 2 * most > len(reports)):
            expected[fact] = value
        else:
            undecided[fact] = dict(counts.most_common())
    return expected, undecided


def _drifts(reports: dict[str, dict[str, Any]], expected: dict[str, str]) -> list[Drift]:
    return [
        Drift(node, fact, report["facts"].get(fact, ""), value)
        for node, report in reports.items()
        for fact, value in expected.items()
        if report["facts"].get(fact, "") != value
    ]
