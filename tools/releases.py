"""Runs `xpulab run release` on releases of Paddle, and writes docs/releases.md: what each release does and does not do.

    .venv/bin/python tools/releases.py [VERSION ...] [--page-only]

Each release gets an environment of its own, build/releases/VERSION/env, made once (about 1.5 GB and two minutes each), with
everything else pinned as usual; each lane keeps its run beside it, build/releases/VERSION/LANE. What is kept is not run again
until its folder is deleted, and with --page-only nothing is run. Run it before an upgrade, with the version of the candidate;
.github/workflows/releases.yml does so every week.

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
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
"""In the folder of a lane, in place of a run: why there is none."""

SUPPORTED = ("3.3.0", "3.3.1")
RELEASES = ("3.2.2", *SUPPORTED)
"""On which nothing may be red, and those that are run when none is named."""
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
        if not self.result:
            return [(NO_RUN, self.failure)]
        found = [(reds[0]["name"], reason_of(reds[0])) for each in self.checks.values() if (reds := red_of(each))]
        for notebook in self.result["notebooks"]:
            if notebook["outcome"] in ("failed", "missing") and not red_of(notebook["checks"]):
                found.append((notebook["name"], in_a_line(notebook["reason"] or "")))
        return found

    def cell(self, capability: str) -> str:
        """What the table shows of a capability."""
        checks = self.checks.get(capability, [])
        if reds := red_of(checks):
            return f"**red** {reds[0]['name'].split('.', 1)[1]}"
        outcomes = {check["outcome"] for check in checks} - {"skipped"}
        return NO_RUN if not self.result else "-" if not outcomes else "known" if outcomes & {"known", "fixed"} else "green"


def red_of(checks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the checks that are red."""
    return [check for check in checks if check["outcome"] in RED]


def reason_of(check: Mapping[str, Any]) -> str:
    """Why a check is red: what its first red row says."""
    for part in red_of(check["rows"]):
        return f"{part['case']}: {in_a_line(part['reason'] or check['reason'] or '')}"
    return in_a_line(check["reason"] or "")


def main(arguments: Sequence[str]) -> int:
    """Run what is not kept yet, write the page, and judge."""
    parser = argparse.ArgumentParser(description="Runs `xpulab run release` on releases of Paddle; writes docs/releases.md.")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"without one: {', '.join(RELEASES)}")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page from the runs that are kept")
    asked = parser.parse_args(arguments)
    try:
        versions = sorted(asked.versions or RELEASES, key=Version)
        for version in () if asked.page_only else versions:
            python = environment(version)
            for lane in LANES:
                if not kept(version, lane):
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
    supported = [each for each in tried if each.version in SUPPORTED]
    reds = [f"{each.version}, {each.lane}: {name}: {why}" for each in supported for name, why in each.red]
    print("\n".join([f"{PAGE}: {len(tried)} runs", *(reds or ["nothing is red on the releases that are supported"])]))
    return 1 if reds else 0


def environment(version: str) -> Path:
    """The Python of an environment with this release; made when it is not there whole, with the pins of today."""
    folder = KEPT / version / "env"
    python, whole = folder / "bin" / "python", folder / "whole"
    pins = files.ROOT / "env" / "requirements" / "common.txt"
    if whole.exists() and whole.read_bytes() == pins.read_bytes():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(python), "-I", "-m", "pip", "install", "--quiet"]
    packages = (["-r", str(pins)], [f"paddlepaddle=={version}"], ["--no-deps", "-e", str(files.ROOT)])
    for step in ([sys.executable, "-I", "-m", "venv", str(folder)], *([*pip, *each] for each in packages)):
        subprocess.run(step, check=True, timeout=INSTALL_SECONDS)
    shutil.copyfile(pins, whole)
    return python


def run(python: Path, folder: Path, lane: str) -> None:
    """Run the notebooks that judge a release into the folder; where no run results, it holds FAILURE instead."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [str(python), "-m", "xpulab", "run", files.RELEASE, "--device", lane, *LANES[lane], "--cold"]
    command += ["--time-limit", "20", "--out", str(folder)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # from there, so that no module of the folder that this was started in is imported
    ran = child.run(command, RUN_SECONDS, cwd=folder.parent, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ran.status not in (0, 1) or not (folder / RESULT).is_file():
        ended = f"it did not end within {RUN_SECONDS} s" if ran.status is None else f"exit code {ran.status}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILURE).write_text(f"{ran.errors.strip() or ran.output.strip() or ended}\n", encoding="utf-8")


def kept(version: str, lane: str) -> Tried | None:
    """What is kept of a release on a lane; None where no try has ended."""
    failure, path = KEPT / version / lane / FAILURE, KEPT / version / lane / RESULT
    if failure.is_file():
        return Tried(version, lane, {}, in_a_line(failure.read_text(encoding="utf-8")))
    result = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"outcome": "running"}
    return None if result["outcome"] == "running" else Tried(version, lane, result, "")


def in_a_line(text: str) -> str:
    """A text in one line, without the folders of this machine; of a traceback its last line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    lines = lines[-1:] if lines[:1] == ["Traceback (most recent call last):"] else lines
    return re.sub(r"(?<![\w.:/])/(?:[\w.+-]+/)+", "", "; ".join(lines).removeprefix("xpulab: "))


def page(tried: Sequence[Tried]) -> str:
    """The whole page."""
    result: Mapping[str, Any] = next((each.result for each in reversed(tried) if each.result), {})
    others = ", ".join(f"{name} {version}" for name, version in result.get("versions", {}).items() if name != "paddlepaddle")
    lines = [
        "# Which release of Paddle to take",
        "",
        f"`xpulab run release` at level quick on the wheels for the CPU, {result.get('date', '')[:10]},",
        f"with {others or 'the pins of env/requirements'}. **Nothing here ran on an XPU or a GPU.**",
        "Made by `tools/releases.py`. To compare two runs of your own: `xpulab compare OLD NEW`.",
        "",
        "*known*: right, but for defects that [the list](../data/known_issues.yaml) has for it, each with a workaround.",
        "**red**: the first failing check; [why](#why-it-is-red). A dash: all checks are skipped.",
        "",
        row("capability", *(f"{each.version}, {each.lane}" for each in tried)),
        f"|---|{'---|' * len(tried)}",
    ]
    for capability in dict.fromkeys(name for each in tried for name in each.checks):
        lines.append(row(capability, *(each.cell(capability) for each in tried)))
    lines += ["", "## Why it is red", "", row("release", "lane", "first failing check", "reason"), "|---|---|---|---|"]
    for each in reversed(tried):
        for name, why in each.red:
            text = re.sub(r"([`|<>*_\[\]$])", r"\\\1", textwrap.shorten(why, SHOWN_REASON, placeholder=" ..."))
            lines.append(row(each.version, each.lane, name, text))
    return "\n".join(lines) + "\n"


def row(*cells: str) -> str:
    """The row of a table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the run that it has started ends too
    sys.exit(main(sys.argv[1:]))
