"""run.json: what a run was asked for, written at its start, so that only the same run goes on in its folder.

Its schema is data/schema/run.schema.json.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import xpulab
from xpulab import files
from xpulab.devices import WHEELS
from xpulab.errors import InputError
from xpulab.harness.execute import Target
from xpulab.harness.plan import Plan, make_plans
from xpulab.harness.written import replace_text
from xpulab.messages import N_
from xpulab.records.environments import SUCCESSOR, installed_versions

NAME = "run.json"
SCHEMA = 1

_PACKAGES = (*WHEELS, "paddlenlp", SUCCESSOR, "numpy")
_SOURCES = (".py", ".cc", ".h", ".yaml", ".json", ".jsonl")


def write(folder: Path, plans: Sequence[Plan], target: Target) -> None:
    """Write run.json into the folder of a run that starts."""
    replace_text(folder / NAME, json.dumps(_asked(plans, target), indent=2) + "\n")


def require_same(folder: Path, plans: Sequence[Plan], target: Target) -> None:
    """Raise InputError, which names what differs, unless the folder is that of the same run on this machine."""
    path = folder / NAME
    if not path.exists():
        raise InputError(
            N_("{folder}: holds no run to resume: it has no {NAME}; start one without --resume", folder=folder, NAME=NAME)
        )
    before = files.load_json(path, files.data("schema", "run.schema.json"))
    if differences := list(_differences(before, _asked(plans, target))):
        raise InputError(
            N_(
                "{folder}: holds another run: {differences}; give the options of that run, or another folder without --resume",
                folder=folder,
                differences="; ".join(differences),
            )
        )


def read(folder: Path) -> tuple[list[Plan], Target]:
    """What the run in the folder was asked for. Raises InputError when it holds none."""
    path = folder / NAME
    if not path.exists():
        raise InputError(
            N_("{folder}: holds no run: it has no {NAME}; name the folder of xpulab run --out", folder=folder, NAME=NAME)
        )
    asked = files.load_json(path, files.data("schema", "run.schema.json"))
    target = Target(asked["device"], asked["level"], asked["cards"], asked["seed"])
    names = [notebook["name"] for notebook in asked["notebooks"]]
    return make_plans(names, target.level), target


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Inside the block no other process resumes this run. Raises InputError when another one runs in the folder."""
    with (folder / NAME).open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                N_("{folder}: this run is under way in another process; wait for its end", folder=folder)
            ) from error
        except OSError:  # a file system without locks
            pass
        yield


def _asked(plans: Sequence[Plan], target: Target) -> dict[str, Any]:
    asked = asdict(target)
    del asked["limit_in_budgets"]  # a run that came to its time limit may go on with a later one
    return {
        "schema": SCHEMA,
        **asked,
        "machine": platform.node(),
        "xpulab": xpulab.__version__,
        "sources": _digest_of_sources(),
        "versions": installed_versions(_PACKAGES),
        "notebooks": [_notebook(plan) for plan in plans],
    }


def _notebook(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "digest": hashlib.sha256(plan.path.read_bytes()).hexdigest(),
        "sections": [section.name for section in plan.sections],
        "checks": [check.name for check in plan.checks],
    }


def _digest_of_sources() -> str:
    """Of xpulab itself: between two releases its version stays the same."""
    digest = hashlib.sha256()
    package = Path(xpulab.__file__).parent
    for path in sorted(path for path in package.rglob("*") if path.suffix in _SOURCES):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name in ("device", "level", "cards", "seed", "machine", "xpulab"):
        if before[name] != now[name]:
            yield f"{name} {before[name]}, not {now[name]}"
    if before["xpulab"] == now["xpulab"] and before["sources"] != now["sources"]:
        yield "the sources of xpulab have changed since"
    for package in sorted({*before["versions"], *now["versions"]}):
        old, new = (each["versions"].get(package, "not installed") for each in (before, now))
        if old != new:
            yield f"{package} {old}, not {new}"
    old_names, new_names = ([each["name"] for each in asked["notebooks"]] for asked in (before, now))
    if old_names != new_names:
        yield f"notebooks {', '.join(old_names)}, not {', '.join(new_names)}"
    elif before["level"] == now["level"]:
        for old, new in zip(before["notebooks"], now["notebooks"], strict=True):
            if old != new:
                changed = N_("notebook {new} has changed since", new=new["name"])
                yield changed if old["digest"] != new["digest"] else N_("other checks of {new} (--check)", new=new["name"])
