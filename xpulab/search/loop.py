"""The command `xpulab search`: random cases in a process that may die, and a file of what was wrong, which is tried first."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xpulab import sim
from xpulab.child import Child, python_module
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.files import replace_text
from xpulab.messages import N_

FOUND = "found.jsonl"
"""The file of a search's folder with the cases that were wrong."""

MARK = "xpulab.search "
"""What a line of worker.py begins with; Paddle and its libraries may print others."""

LIMIT = 60.0
"""Seconds that one case may take; the first also imports Paddle."""

REDUCING = 300.0
"""Seconds after which a case at which the process dies is not made smaller any more; each smaller one is tried in a process."""

Tell = Callable[[dict[str, Any]], None]


@dataclass
class Search:
    """What is asked for, and what was found so far.

    device, operators: where, and a pattern for which. seed: of the first process. seconds: how long. folder: of FOUND and the
    programs. outcomes: how often a case was passed, known, skipped or found. found: the entries of FOUND, one for each case.
    environment: of the processes.
    """

    device: str
    operators: str
    seed: int
    seconds: float
    folder: Path
    outcomes: Counter[str] = field(default_factory=Counter)
    found: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def search(asked: Search, say: Callable[[str], None]) -> None:
    """Try what an earlier search found, then random cases until the time is over; each new finding is said and kept at once.

    Raises InputError when the folder cannot be written, and when the process of the cases does not begin.
    """
    try:
        asked.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = N_("{path}: cannot be made: {why}; choose another folder with --out", path=asked.folder, why=error.strerror)
        raise InputError(text) from error
    asked.found = again = _kept(asked.folder / FOUND)
    of_device = sim.environment(1) if asked.device == SIMULATED else {}
    asked.environment = {"OMP_NUM_THREADS": "1", **os.environ, **of_device}
    end, seed = time.monotonic() + asked.seconds, asked.seed
    told: dict[str, Any] = {"left": 0}

    def tell(facts: dict[str, Any]) -> None:
        told.update(facts)
        if "outcome" in facts:
            asked.outcomes[facts["outcome"]] += 1
        elif "found" in facts:
            keep({**facts["found"], "what": facts["what"], "program": facts["program"]})
        elif "right" in facts:
            _replace(asked, facts["right"])
            say(N_("not wrong any more: {case}", case=format_case(facts["right"])))

    def keep(entry: dict[str, Any]) -> None:
        _replace(asked, entry, entry)
        say(N_("WRONG {found}", found=format_found(entry)))

    while time.monotonic() < end:
        trying, why = _process(asked, {"seed": seed, "again": again}, end, tell)
        again, seed = again[len(again) - told["left"] :], seed + 1
        if why and trying is None:
            raise InputError(N_("the process of the search ended before its first case: {why}", why=why))
        if why and trying:
            asked.outcomes["found"] += 1
            labels = trying["labels"].items()
            if not any(each["check"] == trying["check"] and each["labels"].items() <= labels for each in asked.found):
                keep(_smallest(asked, trying, why))  # what has all labels of one that was found would become that one


def _process(asked: Search, job: dict[str, Any], end: float, tell: Tell) -> tuple[dict[str, Any] | None, str]:
    """Run one process until it ends or the time is over: the case that it tried last, and how it ended, "" for the time."""
    whole = {"device": asked.device, "operators": asked.operators, "folder": str(asked.folder), **job}
    trying, last, printed = None, time.monotonic(), ""
    command = python_module("xpulab.search.worker", json.dumps(whole))
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=asked.environment) as child:
        for line in child.lines():
            now = time.monotonic()
            if now >= end:
                return trying, ""
            if line is None:
                if now - last > LIMIT:
                    return trying, N_("it took more than {limit} s", limit=f"{LIMIT:g}")
                continue
            text, last = line.decode(errors="replace"), now
            if not text.startswith(MARK):
                printed = text.strip() or printed
                continue
            facts = json.loads(text.removeprefix(MARK))
            trying = facts.get("trying", trying)
            tell(facts)
        status = child.wait(LIMIT)
    return trying, N_("its process ended with status {status}: {printed}", status=status, printed=printed)


def _smallest(asked: Search, case: dict[str, Any], what: str) -> dict[str, Any]:
    """The entry of a case at which the process died: the case alone, then without each label that is not needed for it."""

    def dying(labels: dict[str, str]) -> dict[str, Any]:
        """The case with its program, when a process that computes it alone dies, and time is left."""
        told: dict[str, Any] = {}
        trying, why = _process(asked, {"alone": {**case, "labels": labels}}, end, told.update)
        return {**trying, "program": told["program"], "what": what} if trying and why and "right" not in told else {}

    end = time.monotonic() + REDUCING
    smallest = dying(case["labels"])
    for axis in case["labels"] if smallest else ():
        if smaller := dying({name: label for name, label in smallest["labels"].items() if name != axis}):
            for path in (Path(smallest["program"]), Path(smallest["program"]).with_suffix(".npz")):
                path.unlink(missing_ok=True)
            smallest = smaller
    return smallest or {**case, "what": N_("{what}; not when the case is computed alone", what=what)}


def _kept(path: Path) -> list[dict[str, Any]]:
    """What earlier searches found. Raises InputError for a line that is none of ours."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], start=1):
        try:
            entry = json.loads(line)
            found.append(
                {name: entry[name] for name in ("check", "labels", "seed", "what")} | {"program": entry.get("program")}
            )
        except (ValueError, TypeError, KeyError) as error:
            text = N_(
                "{path} line {line}: no case of a search; remove the line, or choose another --out", path=path, line=number
            )
            raise InputError(text) from error
    return found


def _replace(asked: Search, case: dict[str, Any], *by: dict[str, Any]) -> None:
    """Take a case off the list, or put an entry in its place, in the file, too."""
    others = [each for each in asked.found if any(each[name] != case[name] for name in ("check", "labels", "seed"))]
    asked.found = [*others, *by]
    replace_text(asked.folder / FOUND, "".join(json.dumps(each) + "\n" for each in asked.found))


def format_found(entry: dict[str, Any]) -> str:
    """A case with what is wrong, and the program that shows it, in one line."""
    repeat = N_("; to repeat it: python {program}", program=entry["program"]) if entry.get("program") else ""
    return N_("{case}: {what}{repeat}", case=format_case(entry), what=entry["what"], repeat=repeat)


def format_case(entry: dict[str, Any]) -> str:
    """A case in one line."""
    labels = ", ".join(f"{axis} {label}" for axis, label in entry["labels"].items())
    return f"{entry['check']}: {labels or 'default'} (seed {entry['seed']})"
