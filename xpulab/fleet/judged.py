"""Judge the run of a bundle again, on any machine: what its notebooks recorded against what this version plans."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xpulab import __version__, files
from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict, judge, not_run
from xpulab.harness.plan import read_plan
from xpulab.harness.report.result import Result


@dataclass(frozen=True)
class Judged:
    """result: the new judgement. claimed: whether the bundle's own result.json says that it is green.

    notes: what makes the judgement weaker, one sentence each.
    """

    result: Result
    claimed: bool
    notes: tuple[str, ...]


def judge_again(path: Path, folder: Path) -> Judged:
    """Unpack the run of a bundle into a folder, which harness.run.prepare made, and judge each of its notebooks.

    Raises InputError when the file is no bundle, or its result.json does not say what ran.
    """
    made, contents = bundle.read(path)
    stored = _result(path, contents)
    verdicts = tuple(_verdict(path, each, stored["level"], contents, folder) for each in stored["notebooks"])
    target = Target(stored["device"], stored["level"], stored["cards"], stored.get("seed", 0))
    result = Result(target, verdicts, float(stored["seconds"]), folder, stored["date"])
    notes = [] if made.xpulab == __version__ else [f"made by xpulab {made.xpulab}, judged by {__version__}: plans may differ"]
    return Judged(result, bool(stored["green"]), tuple(notes))


def _result(path: Path, contents: dict[str, bytes]) -> dict[str, Any]:
    try:
        stored = json.loads(contents["run/result.json"])
        stored["level"], stored["device"], stored["cards"], stored["seconds"], stored["date"], stored["green"]
        [(each["name"], each["executed"], each["outcome"], each["reason"]) for each in stored["notebooks"]]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: its result.json does not say what ran: {error!r}; ask for the bundle again") from error
    return stored


def _verdict(path: Path, stored: dict[str, Any], level: str, contents: dict[str, bytes], folder: Path) -> Verdict:
    """The verdict on one notebook, whose executed form is written below the folder; one that did not run stays so."""
    committed = files.NOTEBOOKS / f"{stored['name']}.ipynb"
    if committed.name != f"{Path(stored['name']).name}.ipynb" or not committed.exists():
        raise InputError(f"{path}: this version has no notebook {stored['name']!r}; judge it with the version that made it")
    plan = read_plan(committed, level)
    if stored["executed"] is None:
        return not_run(plan, stored["outcome"], stored["reason"] or "it did not run")
    if (name := f"run/{stored['executed']}") not in contents:
        raise InputError(f"{path}: holds no {name}, which its result.json names; ask for the bundle again")
    executed = folder / "notebooks" / committed.name
    executed.write_bytes(contents[name])
    if (log := f"{name.removesuffix('.ipynb')}.log") in contents:
        executed.with_suffix(".log").write_bytes(contents[log])
    return judge(plan, executed)
