"""The report of one check for the developers of Paddle: a folder with a script, its data, and the text of their form.

issue.md       the fields of the form "Bug Report" of PaddlePaddle/Paddle, in English and Chinese
reproduce.py   shows the finding; it needs Paddle, and xpulab only to be made
data/          what the script reads, when it reads something

Source of the form: PaddlePaddle/Paddle, .github/ISSUE_TEMPLATE/1_bug-report.yml.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from xpulab import __version__, files
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.fleet.redact import Redactor
from xpulab.harness.chapter import Chapter
from xpulab.harness.plan import make_plans
from xpulab.harness.sections import LEVELS
from xpulab.records.environments import SUCCESSOR, installed_versions
from xpulab.records.known_issues import KnownIssue, load
from xpulab.records.planned import PlannedCheck
from xpulab.upstream.cells import slice_for
from xpulab.upstream.flatten import flatten
from xpulab.upstream.modules import CannotFollow

TIMEOUT = 300.0
"""Seconds that the script may take."""

SCRIPT, TEXT = "reproduce.py", "issue.md"
_DIFFERS = "DIFFERS"
_INLINE = 400
"""Lines of a script that the text still holds: with 110 characters each, two thirds of what an issue on GitHub may have."""

_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu", "paddlenlp", SUCCESSOR, "numpy", "safetensors")


@dataclass(frozen=True)
class Report:
    """folder: what was written. shown: whether the script showed a difference here. output: what it printed."""

    folder: Path
    shown: bool
    output: str


def write(check: str, device: str, cards: int, found: Mapping[str, Any] | None, folder: Path) -> Report:
    """Write the report of a check into a new folder, and run its script once.

    device: where the script computes; simulated cards are xpulab's own, so it computes on the CPU in their place.
    found: the check as result.json of a run has it, or None. Raises InputError for a check that no chapter plans, for one of
    which no script can be made, and for a folder that cannot be written.
    """
    chapter, planned = _planned(check)
    computes_on = "cpu" if device == SIMULATED else device
    parameters = {"device": computes_on, "level": LEVELS[-1], "cards": cards, "seed": 0}
    try:
        script = flatten(slice_for(chapter, planned, parameters))
    except CannotFollow as error:
        raise InputError(
            f"{check}: a script without xpulab cannot be made: {error}; send the file of `xpulab bundle`"
        ) from error
    try:
        folder.mkdir(parents=True)
        (folder / SCRIPT).write_text(_formatted(_head(check) + script), encoding="utf-8")
        _copy_data(script, folder)
    except FileExistsError as error:
        raise InputError(f"{folder}: exists already; name another folder with --out, or remove it") from error
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error
    output = _output_of(folder)
    shown = any(line.startswith(_DIFFERS) for line in output.splitlines())
    known = [issue for issue in load() if issue.check == check]
    text = _text(check, planned, chapter, computes_on, found, known, folder, output, shown)
    (folder / TEXT).write_text(Redactor.of(os.environ).redact(text)[0], encoding="utf-8")
    return Report(folder, shown, output)


def check_in(run: Path, name: str) -> Mapping[str, Any]:
    """A check as the result.json of a run's folder has it, with the run's device in "device" and its cards in "cards".

    Raises InputError when the folder holds no run, or its run did not plan the check.
    """
    checks = {check["name"]: check for check in checks_in(run)}
    if name not in checks:
        raise InputError(f"{run / 'result.json'}: its run has no check {name!r}{_near(name, list(checks))}")
    return checks[name]


def checks_in(run: Path) -> list[Mapping[str, Any]]:
    """All checks of a run, as check_in returns one. Raises InputError when the folder holds no run."""
    path = run / "result.json"
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        more = {"device": result["device"], "cards": result["cards"]}
        return [{**check, **more} for notebook in result["notebooks"] for check in notebook["checks"]]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; give the folder of a run with --run") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not what `xpulab run` writes: {error!r}") from error


def _planned(name: str) -> tuple[Chapter, PlannedCheck]:
    plans = make_plans([], LEVELS[-1])
    found = {check.name: (plan.chapter, check) for plan in plans for check in plan.checks}
    if name not in found:
        raise InputError(f"no chapter has a check {name!r}{_near(name, list(found))}; `xpulab run --list` shows all")
    return found[name]


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 3)
    return f"; did you mean {', '.join(near)}?" if near else ""


def _head(check: str) -> str:
    about = f"Shows what xpulab's check {check} finds. It needs paddle; paddlenlp and cloudpickle where it imports them."
    return f'"""{about}"""\n\n'


def _formatted(source: str) -> str:
    """The source with the line breaks and the order of imports that people expect; as it is where ruff is missing."""
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--line-length", "110", "-"]
    for command in (
        [*ruff, "check", "--quiet", "--fix", "--select", "I,F401", *options],
        [*ruff, "format", "--quiet", *options],
    ):
        done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60)
        source = done.stdout if done.returncode == 0 and done.stdout else source
    return source


def _copy_data(script: str, folder: Path) -> None:
    """What the script names of data/: folders, and the list of what devices lack."""
    if (declared := files.data("refusals.yaml")).name in script:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        shutil.copy(declared, folder / "data" / declared.name)
    named = {
        node.value for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    if "DATA" not in script:
        return
    for each in sorted(files.DATA.iterdir()):
        if each.is_dir() and each.name in named:
            shutil.copytree(each, folder / "data" / each.name, ignore=shutil.ignore_patterns("__pycache__"))


def _output_of(folder: Path) -> str:
    """What the script prints, its errors at the end, without the folder's own path."""
    path = (folder / SCRIPT).resolve()
    try:
        done = subprocess.run(
            [sys.executable, str(path)],
            cwd=path.parent,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {TIMEOUT:.0f} s"
    printed = done.stdout if done.returncode == 0 else f"{done.stdout}\n{done.stderr}\nexit code {done.returncode}"
    return printed.replace(str(path.parent), ".").strip()


def _text(
    check: str,
    planned: PlannedCheck,
    chapter: Chapter,
    device: str,
    found: Mapping[str, Any] | None,
    known: list[KnownIssue],
    folder: Path,
    output: str,
    shown: bool,
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("xpulab.upstream", "."), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    script = (folder / SCRIPT).read_text(encoding="utf-8")
    lines = script.count("\n")
    return environment.get_template("issue.md.j2").render(
        check=check,
        chapter=chapter.path.stem,
        device=device,
        found=found,
        red_rows=[row for row in found["rows"] if row["outcome"] not in ("passed", "skipped")] if found else [],
        known=known,
        has_data=(folder / "data").exists(),
        script=script if lines <= _INLINE else None,
        lines=lines,
        output=_shortened(output),
        shown=shown,
        versions=installed_versions(_PACKAGES),
        system=platform.platform(),
        python=platform.python_version(),
        xpulab=__version__,
    )


def _shortened(output: str) -> str:
    """At most 80 lines, those of differences first."""
    lines = output.splitlines()
    if len(lines) <= 80:
        return output
    differing = [line for line in lines if line.startswith(_DIFFERS)]
    return "\n".join([*differing[:40], f"... {len(lines)} lines in all; the last are:", *lines[-30:]])
