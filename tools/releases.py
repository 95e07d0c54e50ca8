"""Runs `xpulab run release` on releases of Paddle, and writes docs/releases.md: what each release does and does not do.

    .venv/bin/python tools/releases.py [VERSION ...] [--again | --page-only]

Each release gets an environment of its own, build/releases/VERSION/env, made once (about 1.5 GB and two minutes each), with
everything else pinned as usual; each lane keeps its run beside it, build/releases/VERSION/LANE. What is kept is not run again
without --again, and with --page-only nothing is run: the page is written from what is there. Run it before an upgrade, with the
version of the candidate; .github/workflows/releases.yml does so every week.

Exit codes: 0 nothing is red on a release that the suite supports, 1 something is, 2 for wrong arguments, when nothing is kept,
or when an environment could not be made.
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
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from xpulab import child, files
from xpulab.records.record import RED

PAGE = files.ROOT / "docs" / "releases.md"
KEPT = files.ROOT / "build" / "releases"
RESULT = "result.json"
FAILURE = "failure.txt"
"""In the folder of a lane, in place of a run: why there is none. The time of the file is that of the try."""

RELEASES = ("3.2.2", "3.3.0", "3.3.1")
"""Those that are run when none is named."""
SUPPORTED = ("3.3.0", "3.3.1")
"""The releases on which nothing may be red."""
LANES = {"cpu": (), "sim": ("--cards", "2")}
"""By lane the further arguments of its run."""

INSTALL_SECONDS, RUN_SECONDS = 1800, 3600
SHOWN_REASON = 160
"""How many characters of a reason the page shows."""
NO_RUN = "no run"


@dataclass(frozen=True)
class Tried:
    """A release on a lane. result: the content of result.json, empty where there is none. failure: why there is none."""

    version: str
    lane: str
    result: Mapping[str, Any]
    failure: str
    date: str

    @cached_property
    def checks(self) -> dict[str, list[Mapping[str, Any]]]:
        """By capability its checks."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for notebook in self.result.get("notebooks", ()):
            for check in notebook["checks"]:
                found.setdefault(check["name"].split(".")[0], []).append(check)
        return found

    @property
    def red(self) -> list[tuple[str, str]]:
        """What is red and why: of each capability the first failing check, and the notebooks that have no such check."""
        found = [(reds[0]["name"], reason_of(reds[0])) for each in self.checks.values() if (reds := red_of(each))]
        for notebook in self.result.get("notebooks", ()):
            if notebook["outcome"] in ("failed", "missing") and not red_of(notebook["checks"]):
                found.append((notebook["name"], in_a_line(notebook["reason"] or "")))
        return found if self.result else [(NO_RUN, self.failure)]

    def cell(self, capability: str) -> str:
        """What the table shows of a capability."""
        if not self.result:
            return NO_RUN
        checks = self.checks.get(capability, [])
        if reds := red_of(checks):
            more = f" +{len(reds) - 1}" if reds[1:] else ""
            return f"**red** {reds[0]['name'].split('.', 1)[1]}{more}"
        outcomes = {check["outcome"] for check in checks} - {"skipped"}
        return "-" if not outcomes else "known" if outcomes & {"known", "fixed"} else "green"


def red_of(checks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the checks that are red."""
    return [check for check in checks if check["outcome"] in RED]


def reason_of(check: Mapping[str, Any]) -> str:
    """Why a check is red: what its first red row says."""
    reds = [part for part in check["rows"] if part["outcome"] in RED]
    if not reds:
        return in_a_line(check["reason"] or "")
    return f"{reds[0]['case']}: {in_a_line(reds[0]['reason'] or check['reason'] or '')}"


def main(arguments: Sequence[str]) -> int:
    """Run what is not kept yet, write the page, and judge."""
    parser = argparse.ArgumentParser(
        description="Runs `xpulab run release` on releases of Paddle, and writes docs/releases.md."
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"without one: {', '.join(RELEASES)}")
    parser.add_argument("--again", action="store_true", help="repeat runs that are kept")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page from the runs that are kept")
    asked = parser.parse_args(arguments)
    try:
        versions = sorted(asked.versions or RELEASES, key=Version)
        for version in () if asked.page_only else versions:
            python = environment(version)
            for lane in LANES:
                if asked.again or not kept(version, lane):
                    print(f"{version}, {lane}: running", flush=True)
                    run(python, KEPT / version / lane, lane)
    except InvalidVersion as error:
        print(f"{error}: give versions of paddlepaddle, as {RELEASES[-1]}", file=sys.stderr)
        return 2
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{version}: the environment could not be made: {error}", file=sys.stderr)
        return 2
    folders = sorted((path.name for path in KEPT.glob("[0-9]*")), key=Version)
    tried = [each for version in folders for lane in LANES if (each := kept(version, lane))]
    if not tried:
        print(f"{KEPT} holds no run; run this without --page-only", file=sys.stderr)
        return 2
    PAGE.write_text(page(tried), encoding="utf-8")
    reds = [
        f"{each.version}, {each.lane}: {name}: {why}" for each in tried if each.version in SUPPORTED for name, why in each.red
    ]
    print("\n".join([f"{PAGE}: {len(tried)} runs", *(reds or ["nothing is red on the releases that are supported"])]))
    return 1 if reds else 0


# --------------------------------------------------------------------------------------------------------------- the runs


def environment(version: str) -> Path:
    """The Python of an environment with this release; made when it is not there whole, with the pins of today."""
    folder = KEPT / version / "env"
    python, whole = folder / "bin" / "python", folder / "whole"
    pins = files.ROOT / "env" / "requirements" / "common.txt"
    if whole.exists() and whole.read_bytes() == pins.read_bytes():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    install("-m", "venv", str(folder), python=Path(sys.executable))
    install("-m", "pip", "install", "--quiet", "-r", str(pins), f"paddlepaddle=={version}", python=python)
    install("-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(files.ROOT), python=python)
    shutil.copyfile(pins, whole)
    return python


def install(*arguments: str, python: Path) -> None:
    """Run a step of making an environment; raises where it fails."""
    subprocess.run([str(python), *arguments], check=True, timeout=INSTALL_SECONDS)


def run(python: Path, folder: Path, lane: str) -> None:
    """Run the notebooks that judge a release into the folder; where no run results, it holds FAILURE instead."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [str(python), "-m", "xpulab", "run", files.RELEASE, "--device", lane, *LANES[lane], "--cold"]
    # in an empty folder, so that no module of the folder that this was started in is imported
    with tempfile.TemporaryDirectory(prefix="xpulab-releases-") as scratch:
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        ran = child.run([*command, "--time-limit", "20", "--out", str(folder)], RUN_SECONDS, cwd=scratch, env=environ)
    if ran.status not in (0, 1) or not (folder / RESULT).is_file():
        ended = f"it did not end within {RUN_SECONDS} s" if ran.status is None else f"exit code {ran.status}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILURE).write_text(f"{ran.errors.strip() or ran.output.strip() or ended}\n", encoding="utf-8")


def kept(version: str, lane: str) -> Tried | None:
    """What is kept of a release on a lane; None where no try has ended."""
    failure, path = KEPT / version / lane / FAILURE, KEPT / version / lane / RESULT
    if failure.is_file():
        date = datetime.fromtimestamp(failure.stat().st_mtime).date().isoformat()
        return Tried(version, lane, {}, in_a_line(failure.read_text(encoding="utf-8")), date)
    if not path.is_file():
        return None
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return Tried(version, lane, {}, f"{RESULT} cannot be read: {error}", "")
    return None if result["outcome"] == "running" else Tried(version, lane, result, "", result["date"][:10])


def in_a_line(text: str) -> str:
    """A text in one line, without the folders of this machine; of a traceback its last line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    lines = lines[-1:] if lines[:1] == ["Traceback (most recent call last):"] else lines
    return re.sub(r"(?<![\w.:/])/(?:[\w.+-]+/)+", "", "; ".join(lines).removeprefix("xpulab: "))


# --------------------------------------------------------------------------------------------------------------- the page


def page(tried: Sequence[Tried]) -> str:
    """The whole page."""
    result: Mapping[str, Any] = next((each.result for each in reversed(tried) if each.result), {})
    others = ", ".join(f"{name} {version}" for name, version in result.get("versions", {}).items() if name != "paddlepaddle")
    dates = sorted({each.date for each in tried})
    lines = [
        "# Which release of Paddle to take",
        "",
        f"`xpulab run release` at level quick on the wheels for the CPU, {' to '.join(dict.fromkeys((dates[0], dates[-1])))},",
        f"with {others or 'the pins of env/requirements'}. **Nothing here ran on an XPU or a GPU.**",
        "Made by `tools/releases.py`. To compare two runs of your own: `xpulab compare OLD NEW`.",
        "",
        "*known*: right, but for defects that [the list](../data/known_issues.yaml) has for it, each with a workaround.",
        "**red**: the first failing check, and how many more; [why](#why-it-is-red). A dash: all checks are skipped.",
        "",
    ]
    lines += [row(("capability", *(f"{each.version}, {each.lane}" for each in tried))), f"|---|{'---|' * len(tried)}"]
    for capability in dict.fromkeys(name for each in tried for name in each.checks):
        lines.append(row((capability, *(each.cell(capability) for each in tried))))
    lines += ["", "## Why it is red", "", row(("release", "lane", "first failing check", "reason")), "|---|---|---|---|"]
    lines += list(reasons(tried)) or [row(("none", "-", "-", "-"))]
    return "\n".join(lines) + "\n"


def reasons(tried: Sequence[Tried]) -> Iterator[str]:
    """A row for each first failing check, the newest release first."""
    for each in reversed(tried):
        for name, why in each.red:
            text = why if len(why) <= SHOWN_REASON else f"{why[:SHOWN_REASON].rsplit(' ', 1)[0]} ..."
            yield row((each.version, each.lane, name, re.sub(r"([`|<>*_\[\]$])", r"\\\1", text)))


def row(cells: Sequence[str]) -> str:
    """The row of a table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the run that it has started ends too
    sys.exit(main(sys.argv[1:]))
