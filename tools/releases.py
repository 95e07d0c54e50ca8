"""Runs the whole suite on releases of Paddle, and writes docs/releases.md and docs/zh/releases.md: each capability on each.

    .venv/bin/python tools/releases.py [VERSION ...] [--again | --page-only]

Each release gets an environment of its own, build/releases/VERSION/env, made once (about 1.5 GB and two minutes each), with
everything else pinned as usual; each lane keeps its run beside it, build/releases/VERSION/LANE. What is kept is not run again
without --again, and with --page-only nothing is run: the pages are written from what is there. Exit codes: 0 when every defect
that is listed for a release that was run is seen, and nothing is red on a supported one, 1 otherwise, 2 for wrong arguments,
when nothing is kept, or when an environment could not be made. No part of env/test.sh: it takes too long, and tests nothing
that changes here from day to day.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from capabilities import GREEN, IS_RED, UNCOMPARED, WITH_KNOWN, Standing, red_chapters, standings, why_it_stopped
from publish_grids import grids
from translate import publish, row_of

from xpulab import child, files
from xpulab.errors import InputError
from xpulab.fleet.runs import RESULT, Reader, Run
from xpulab.messages import N_
from xpulab.records import known_issues
from xpulab.records.record import RED

PAGE = files.ROOT / "docs" / "releases.md"
KEPT = files.ROOT / "build" / "releases"
AGAIN = "again"
"""In the folder of a run: the run of the chapters that a time limit stopped."""
FAILURE = "failure.txt"
"""In the folder of a lane, in place of a run: why there is none. The time of the file is that of the try."""

RELEASES = ("3.0.0", "3.1.1", "3.2.2", "3.3.0", "3.3.1")
LANES = {"cpu": (), "sim": ("--cards", "2")}
"""By lane the further arguments of its run."""

_GATHER = N_("gather(axis=1) gives every row the last row's gradient")
_MASK = N_("a mask of two axes with a slice is refused")
DEFECTS: dict[str, dict[str, str]] = {
    "3.0.0": {
        "numerics.gradients": _GATHER,
        "numerics.random": N_("bernoulli_(0.3) has mean 0.7"),
        "numerics.edges": N_(
            "[2, 0] @ [0, 3] is garbage; maximum drops NaN; a sum of 4096 ones in bfloat16 is 1024; "
            "a two-dimensional mask with an index is refused"
        ),
        "shard-dataloader.rows": N_("shard_dataloader fails on texts in a batch, and in its second epoch"),
        "indexing.selections": _GATHER,
        "indexing.get": _MASK,
    },
    "3.1.1": {"indexing.get": _MASK},
    "3.2.2": {},
    "3.3.0": {},
    "3.3.1": {},
}
"""By release: which check must fail on the CPU, and why. What else fails there is shown and not judged."""

SUPPORTED = ("3.3.0", "3.3.1")
"""The releases on which nothing may be red, and which install.versions accepts."""

LATER = N_("known in 3.3")
"""A red capability, each of whose red rows is a defect that data/known_issues.yaml has, but not for this release."""

INSTALL_SECONDS, RUN_SECONDS = 1800, 1500
_SHOWN_REASON = 160


@dataclass(frozen=True)
class Tried:
    """A release on a lane. run: its run, None where there is none. failure: why there is none, in one line; else ""."""

    version: str
    lane: str
    run: Run | None
    failure: str
    date: str

    @cached_property
    def standings(self) -> dict[str, Standing]:
        """By capability what the run says of it; empty where there is none."""
        return standings(self.run) if self.run else {}

    @cached_property
    def outcomes(self) -> dict[str, str]:
        """By capability its outcome; LATER where each red row is a defect that the list has for another release."""
        found = {capability: each.outcome for capability, each in self.standings.items()}
        return {name: LATER if outcome == IS_RED and not self.unlisted(name) else outcome for name, outcome in found.items()}

    def unlisted(self, capability: str) -> tuple[tuple[str, str, str], ...]:
        """Of each check of a red capability the first red row that is no known issue of any release: check, case, reason."""
        found: dict[str, tuple[str, str, str]] = {}
        for name in self.standings[capability].checks:
            for check, case, reason in self._red_rows.get(name, ()):
                if not known_as(check, case or None, self.lane):
                    found.setdefault(name, (check, case, reason))
        return tuple(found.values())

    @cached_property
    def _red_rows(self) -> dict[str, list[tuple[str, str, str]]]:
        """By red check its red rows, or itself where it has none: check, case, reason in one line."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for notebook, check in self.run.checks() if self.run else ():
            for part in check["rows"] or [check]:
                if part["outcome"] in RED:
                    reason = part["reason"] or check["reason"] or ""
                    if part["outcome"] == "missing" and self.run:
                        reason = why_it_stopped(self.run, notebook["name"]) or reason
                    found.setdefault(check["name"], []).append((check["name"], part.get("case", ""), reason))
        return found

    @property
    def red(self) -> set[str]:
        """The names of all checks that are red."""
        return {check for each in self.standings.values() if each.outcome == IS_RED for check in each.checks}


def main(arguments: Sequence[str]) -> int:
    """Run what is not kept yet, write both pages, and judge."""
    parser = argparse.ArgumentParser(description="Runs the whole suite on releases of Paddle, and writes docs/releases.md.")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(RELEASES)}; without one, all")
    parser.add_argument("--again", action="store_true", help="repeat runs that are kept")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the pages from the runs that are kept")
    asked = parser.parse_args(arguments)
    if unknown := [version for version in asked.versions if version not in RELEASES]:
        print(f"no release {unknown[0]} here; choose of {', '.join(RELEASES)}", file=sys.stderr)
        return 2
    for version in () if asked.page_only else asked.versions or RELEASES:
        try:
            python = environment(version)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{version}: the environment could not be made: {error}", file=sys.stderr)
            return 2
        for lane in LANES:
            if asked.again or not kept(version, lane):
                print(f"{version}, {lane}: running", flush=True)
                run(python, KEPT / version / lane, lane)
            repeat_late(python, KEPT / version / lane, lane)
    tried = [each for version in RELEASES for lane in LANES if (each := kept(version, lane))]
    if not tried:
        print(f"{KEPT} holds no run; run this without --page-only", file=sys.stderr)
        return 2
    publish(PAGE, page(tried))
    print(f"{PAGE.relative_to(files.ROOT)}: {len(tried)} runs")
    faults = list(judged(tried))
    print("\n".join(faults) or "every listed defect is seen, and nothing is red on the releases that are supported")
    if unseen := [
        version for version in RELEASES if DEFECTS[version] and (version, "cpu") not in {(t.version, t.lane) for t in tried}
    ]:
        print(f"not run on the CPU, so the defects listed for them are not compared: {', '.join(unseen)}")
    return 1 if faults else 0


# --------------------------------------------------------------------------------------------------------------- the runs


def environment(version: str) -> Path:
    """The Python of an environment with this release; made when it is not there whole, with the pins of today."""
    folder = KEPT / version / "env"
    python, whole = folder / "bin" / "python", folder / "whole"
    pins = files.ROOT / "env" / "requirements" / "common.txt"
    if whole.exists() and whole.read_bytes() == pins.read_bytes():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    requirements = ["-r", str(pins), f"paddlepaddle=={version}"]
    if uv := shutil.which("uv"):
        _done([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        _done([sys.executable, "-m", "venv", str(folder)])
        install = [str(python), "-m", "pip", "install", "--quiet"]
    _done([*install, *requirements])
    _done([*install, "--no-deps", "--editable", str(files.ROOT)])
    shutil.copyfile(pins, whole)
    return python


def _done(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS)


def run(python: Path, folder: Path, lane: str) -> None:
    """Run the suite at level quick into the folder; where no run results, it holds FAILURE instead."""
    shutil.rmtree(folder, ignore_errors=True)
    ran = _run(python, folder, lane)
    if ran.status in (0, 1) and (folder / RESULT).is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ended = f"it did not end within {RUN_SECONDS} s" if ran.status is None else f"exit code {ran.status}"
    (folder / FAILURE).write_text(f"{ran.errors.strip() or ran.output.strip() or ended}\n", encoding="utf-8")


def repeat_late(python: Path, folder: Path, lane: str) -> None:
    """Run the chapters that a time limit stopped alone, into AGAIN: the machine may have been busy with something else."""
    if not (folder / RESULT).is_file() or (folder / AGAIN).exists():
        return
    if late := _late(json.loads((folder / RESULT).read_text(encoding="utf-8"))):
        print(f"{folder.parent.name}, {lane}: running {', '.join(late)} again", flush=True)
        _run(python, folder / AGAIN, lane, *late, "--jobs", "1")


def _run(python: Path, folder: Path, lane: str, *more: str) -> child.Ran:
    command = [str(python), "-m", "xpulab", "run", *more, "--device", lane, *LANES[lane], "--cold", "--out", str(folder)]
    # in an empty folder, so that no module of the folder that this was started in is imported
    with tempfile.TemporaryDirectory(prefix="xpulab-releases-") as scratch:
        return child.run(command, RUN_SECONDS, cwd=scratch, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _late(result: Mapping[str, Any]) -> list[str]:
    """The chapters that a time limit stopped, by the sentence of the report (xpulab.harness.lost)."""
    return [each["name"] for each in result["notebooks"] if "had not ended after" in (each["reason"] or "")]


def kept(version: str, lane: str) -> Tried | None:
    """What is kept of a release on a lane; None where no try has ended. A run that cannot be read is a failure, too."""
    folder = KEPT / version / lane
    failure = folder / FAILURE
    if failure.is_file():
        return Tried(version, lane, None, in_a_line(failure.read_text(encoding="utf-8")), _day(failure))
    if not (folder / RESULT).is_file():
        return None
    try:
        found = Reader().read(folder, f"{version}, {lane}")
        second = Reader().read(folder / AGAIN) if (folder / AGAIN / RESULT).is_file() else None
    except InputError as error:
        return Tried(version, lane, None, in_a_line(str(error)), _day(folder / RESULT))
    if not found.is_finished:
        return None
    if second and second.is_finished:
        again = {each["name"]: each for each in second.result["notebooks"]}
        found = replace(
            found, result={**found.result, "notebooks": [again.get(each["name"], each) for each in found.result["notebooks"]]}
        )
    return Tried(version, lane, found, "", found.result["date"][:10])


def _day(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime).date().isoformat()


def in_a_line(text: str) -> str:
    """A text in one line, without the folders of this machine; of a traceback its last line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    lines = lines[-1:] if lines[:1] == ["Traceback (most recent call last):"] else lines
    return re.sub(r"(?<![\w.:/])/(?:[\w.+-]+/)+", "", "; ".join(lines).removeprefix("xpulab: "))


# ---------------------------------------------------------------------------------------------------------------- judging


def judged(tried: Sequence[Tried]) -> Iterator[str]:
    """A line for each listed defect that is not seen on the CPU, and for each supported release with something red."""
    for each in tried:
        if each.version in SUPPORTED:
            if reds := [*sorted(each.red), *(_red_chapters(each)), *filter(None, [each.failure])]:
                yield f"{each.version}, {each.lane}: red: {', '.join(reds)}"
        elif each.lane == "cpu":
            for check in ("install.versions", *DEFECTS[each.version]):
                if check not in each.red:
                    defect = DEFECTS[each.version].get(check, "it accepts this release as a supported one")
                    yield f"{each.version}: MISSED {check}: {defect}"


def _red_chapters(tried: Tried) -> dict[str, Mapping[str, object]]:
    return red_chapters(tried.run) if tried.run else {}


# --------------------------------------------------------------------------------------------------------------- the page


def page(tried: Sequence[Tried]) -> str:
    """The whole page."""
    lines = [f"# {N_('Which release of Paddle to take')}", "", *_introduction(tried), "", *_overview(tried)]
    lines += ["", f"## {N_('Capabilities')}", "", *_legend(), "", *_matrix(tried)]
    lines += ["", f"## {N_('What an upgrade changes')}", "", *_upgrades(tried)]
    lines += ["", f"## {N_('Why it is red')}", "", *_reasons(tried)]
    return "\n".join(lines) + "\n"


def _introduction(tried: Sequence[Tried]) -> Iterator[str]:
    good = [version for version in reversed(RELEASES) if _is_right(version, tried)]
    if good:
        lanes, versions = ", ".join(each.lane for each in tried if each.version == good[0]), ", ".join(good)
        yield N_(f"**Take {good[0]}** (run on {lanes}): nothing is red on {versions}.")
    places = [(each.version, each.lane) for each in tried]
    if left := [f"{version} ({lane})" for version in RELEASES for lane in LANES if (version, lane) not in places]:
        yield N_(f"**Not run yet**: {', '.join(left)}; their cells are empty, and nothing here speaks of them.")
    yield N_("The stable wheel for Kunlun XPUs is 3.3.0. **Nothing here ran on an XPU or a GPU**, only the wheels for the CPU.")
    yield ""
    dates = sorted({each.date for each in tried})
    result: Mapping[str, Any] = next((each.run.result for each in reversed(tried) if each.run), {})
    found = {**result.get("versions", {}), "Python": result.get("machine", {}).get("python")}
    others = ", ".join(f"{name} {found[name]}" for name in ("paddlenlp", "numpy", "Python") if found.get(name))
    when = " - ".join(dict.fromkeys((dates[0], dates[-1])))
    yield N_(
        f"The whole suite at level quick, run on {when} with {others}, and everything else pinned as in `env/requirements`."
    )
    yield N_("Made by `tools/releases.py`. From two runs of your own:")
    yield ""
    yield "    xpulab compare OLD NEW"


def _is_right(version: str, tried: Sequence[Tried]) -> bool:
    """Whether the release was run on the CPU, and nothing is red on any lane that it was tried on."""
    of_it = [each for each in tried if each.version == version]
    return "cpu" in [each.lane for each in of_it] and all(
        each.run and not each.red and not _red_chapters(each) for each in of_it
    )


def _overview(tried: Sequence[Tried]) -> Iterator[str]:
    counted = (GREEN, WITH_KNOWN, LATER, IS_RED, UNCOMPARED)
    yield row_of((N_("release"), N_("lane"), *counted, N_("date")))
    yield "|---|---|---:|---:|---:|---:|---:|---|"
    for each in reversed(tried):
        if each.run is None:
            yield f"| {each.version} | {each.lane} | - | - | - | {_ended_as(each)} | - | {each.date} |"
            continue
        outcomes = [*each.outcomes.values()]
        counts = " | ".join(str(outcomes.count(outcome)) for outcome in counted)
        yield f"| {each.version} | {each.lane} | {counts} | {each.date} |"


def _ended_as(tried: Tried) -> str:
    return N_("does not build") if "does not build" in tried.failure else N_("does not run")


def _legend() -> Iterator[str]:
    yield N_("*green*: all that was compared is right.")
    yield N_(
        "*known*: right, but for defects that [the list](../data/known_issues.yaml) has for this release, "
        "each with a workaround."
    )
    yield N_("*known in 3.3*: red, but the list has all of it for 3.3, so an upgrade changes nothing there.")
    yield N_(
        "**red**: with the first failing check, that is not on it, and how many more; [why](#why-it-is-red). "
        "A dash: all checks are skipped there."
    )
    yield N_("[Capabilities](capabilities.md) says what each one is.")


def _matrix(tried: Sequence[Tried]) -> Iterator[str]:
    versions = list(dict.fromkeys(each.version for each in tried))
    by_place = {(each.version, each.lane): each for each in tried}
    capabilities = list(dict.fromkeys(name for each in tried for name in each.standings))
    yield row_of((N_("capability"), N_("lane"), *versions))
    yield f"|---|---|{'---|' * len(versions)}"
    for capability in capabilities:
        for lane in LANES:
            cells = [_cell(by_place[version, lane], capability) if (version, lane) in by_place else "" for version in versions]
            yield f"| {capability} | {lane} | {' | '.join(cells)} |"


def _cell(tried: Tried, capability: str) -> str:
    if tried.run is None:
        return _ended_as(tried)
    outcome = tried.outcomes.get(capability, "")
    if outcome == IS_RED:
        checks = tried.unlisted(capability)
        name, more = checks[0][0].split(".", 1)[1], f" +{len(checks) - 1}" if checks[1:] else ""
        return N_(f"**red** {name}") + more
    return "-" if outcome == UNCOMPARED else outcome


def _upgrades(tried: Sequence[Tried]) -> Iterator[str]:
    """For each lane and each two neighbours what differs in the outcome of capabilities; the newest first."""
    for lane in LANES:
        of_lane = [each for each in tried if each.lane == lane]
        for before, after in reversed(list(pairwise(of_lane))):
            changed = "; ".join(_changed(before, after)) or N_("no outcome differs")
            old, new = before.version, after.version
            yield "- " + N_(f"**from {old} to {new}, {lane}**: {changed}.")


def _changed(before: Tried, after: Tried) -> Iterator[str]:
    if before.run is None or after.run is None:
        if before.failure and after.failure:
            yield N_(f"{_ended_as(before)}, before and after")
        elif before.failure:
            yield N_(f"it runs now, before it {_ended_as(before)}")
        else:
            yield N_(f"it {_ended_as(after)} any more")
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for capability, new in after.outcomes.items():
        old = before.outcomes.get(capability, new)
        if old != new and {old, new} != {LATER, WITH_KNOWN}:
            shown = f"{capability} (`{after.unlisted(capability)[0][0]}`)" if new == IS_RED else capability
            groups.setdefault((old, new), []).append(shown)
    for (old, new), of_it in groups.items():
        names = ", ".join(of_it)
        yield N_(f"*{old}, now {new}*: {names}")


def _reasons(tried: Sequence[Tried]) -> Iterator[str]:
    """For each release a table of the first failing check of each red capability; runs that there are not first."""
    yield N_("The cause where it is known, else what the check says.")
    yield N_("Where a chapter cannot go on, checks that never ran are red.")
    for version in reversed(RELEASES):
        of_it = [each for each in tried if each.version == version]
        lines = [f"- {each.lane}: {_text(each.failure, 2 * _SHOWN_REASON)}" for each in of_it if each.run is None]
        lines += [
            f"- {each.lane}: " + N_(f"{name} is red although none of its checks is: {_text(in_a_line(str(red['reason'])))}")
            for each in of_it
            for name, red in _red_chapters(each).items()
        ]
        rows: dict[tuple[str, str], list[str]] = {}
        for each in of_it:
            for capability, outcome in each.outcomes.items():
                if outcome == IS_RED:
                    check, case, reason = each.unlisted(capability)[0]
                    rows.setdefault((check, cause(version, check, case, reason)), []).append(each.lane)
        if not lines and not rows:
            continue
        yield from ("", f"### {version}", "", *lines, *([""] if lines and rows else []))
        if rows:
            yield from (row_of((N_("first failing check"), N_("lane"), N_("cause"))), "|---|---|---|")
            yield from (f"| {check} | {', '.join(lanes)} | {why} |" for (check, why), lanes in rows.items())


def cause(version: str, check: str, case: str, reason: str) -> str:
    """Why a check is red, as Markdown: the defect that is listed here, or what the check says."""
    if listed := DEFECTS[version].get(check):
        return _text(listed)
    if check == "install.versions":
        names = ", ".join(SUPPORTED)
        return N_(f"the suite supports {names}")
    return _text(in_a_line(f"{case}: {reason}" if case else reason))


def known_as(check: str, case: str | None, lane: str) -> known_issues.KnownIssue | None:
    """The known issue, of whatever release, that a red row of a check shows; the passport's rows have the names of issues."""
    for issue in _issues():
        if lane in issue.devices and (issue.check, issue.case) == (check, case) and not issue.when:
            return issue
        if lane in issue.devices and issue.check == check and issue.when and _is_of(issue, case or ""):
            return issue
        if (check, case) == ("passport.defects", issue.id):
            return issue
    return None


def _is_of(issue: known_issues.KnownIssue, case: str) -> bool:
    """Whether a case of a grid is one of those with the defect. Its name leaves out the axes that have their default."""
    axes = _axes().get(issue.check, {})
    for axis, labels in issue.when.items():
        if f", {axis} " in f", {case}":
            if not any(f", {axis} {label}, " in f", {case}, " for label in labels):
                return False
        elif axes.get(axis, [""])[0] not in labels:
            return False
    return True


@cache
def _issues() -> Sequence[known_issues.KnownIssue]:
    return known_issues.load()


@cache
def _axes() -> dict[str, dict[str, list[str]]]:
    """By check of a grid, by axis its labels, the default first, as the committed notebooks show them."""
    return {grid["check"]: grid["axes"] for _, grid in grids()}


def _text(text: str, most: int = _SHOWN_REASON) -> str:
    """A reason as part of a line of Markdown, shortened."""
    text = text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} ..."
    return re.sub(r"([`|<>*_\[\]$])", r"\\\1", text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the run that it has started ends too
    sys.exit(main(sys.argv[1:]))
