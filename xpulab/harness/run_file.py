"""run.json: what a run was asked for, written at its start, so that only the same run goes on in its folder.

Its schema is data/schema/run.schema.json.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import xpulab
from xpulab import files
from xpulab.devices import WHEELS
from xpulab.doctor.system import boot_id
from xpulab.errors import InputError
from xpulab.harness.execute import RunOptions
from xpulab.harness.plan import Plan, make_plans
from xpulab.messages import N_
from xpulab.records.environments import SUCCESSOR, installed_versions

NAME = "run.json"
SCHEMA = 4


def write(folder: Path, plans: Sequence[Plan], options: RunOptions) -> None:
    """Write run.json into the folder of a run that starts."""
    files.replace_text(folder / NAME, json.dumps(_asked(plans, options), indent=2) + "\n")


def require_same(folder: Path, plans: Sequence[Plan], options: RunOptions) -> None:
    """Raise InputError, which names what differs, unless the folder is that of the same run on this machine."""
    if differences := "; ".join(_differences(_stored(folder), _asked(plans, options))):
        another = N_("{folder}: holds another run: {differences}", folder=folder, differences=differences)
        raise InputError(N_("{another}; give the options of that run, or another folder without --resume", another=another))


def read(folder: Path) -> tuple[list[Plan], RunOptions]:
    """What the run in the folder was asked for. Raises InputError when it holds none."""
    asked = _stored(folder)
    options = RunOptions(**asked["options"])
    return make_plans(list(asked["notebooks"]), options.level), options


def boot_of(folder: Path) -> str | None:
    """The boot of this machine in which the run in the folder began; None when that was not the present one."""
    began = _stored(folder)["boot"]
    return began if began == boot_id() else None


def _stored(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    if not path.exists():
        raise InputError(
            N_("{folder}: holds no run: it has no {NAME}; name the folder of xpulab run --out", folder=folder, NAME=NAME)
        )
    return files.load_json(path, files.data("schema", "run.schema.json"))


def _asked(plans: Sequence[Plan], options: RunOptions) -> dict[str, Any]:
    stored = asdict(options)
    del stored["limit_in_budgets"]  # a run that came to its time limit may go on with a later one
    del stored["is_whole"]  # the notebooks say it
    return {
        "schema": SCHEMA,
        "options": stored,
        "machine": platform.node(),
        "boot": boot_id(),
        "versions": {"xpulab": xpulab.__version__, **installed_versions((*WHEELS, "paddlenlp", SUCCESSOR, "numpy"))},
        "notebooks": {plan.name: _digest_of(plan) for plan in plans},
    }


def _digest_of(plan: Plan) -> str:
    """Of the notebook's file and of its sections and checks that run."""
    chosen = [[section.name for section in plan.sections], [check.name for check in plan.checks]]
    return hashlib.sha256(plan.chapter.path.read_bytes() + json.dumps(chosen).encode()).hexdigest()


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if before["machine"] != now["machine"]:
        yield f"machine {before['machine']}, not {now['machine']}"
    for part in ("options", "versions"):
        for name in sorted({*before[part], *now[part]}):
            if before[part].get(name) != now[part].get(name):
                yield f"{name} {before[part].get(name)}, not {now[part].get(name)}"
    if list(before["notebooks"]) != list(now["notebooks"]):
        yield f"notebooks {', '.join(before['notebooks'])}, not {', '.join(now['notebooks'])}"
    elif before["options"]["level"] == now["options"]["level"]:
        for name, digest in now["notebooks"].items():
            if before["notebooks"][name] != digest:
                yield N_("notebook {name} has changed since, or other checks of it are asked for (--check)", name=name)
