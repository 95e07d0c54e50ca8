"""The command `xpulab shapes`: run a script in another process until a step is recorded, and show what the replay found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xpulab import sim
from xpulab.child import Child
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.operators import prediction

TIMEOUT = 1800.0
"""Seconds that the script, and the comparison, may take."""

_LAST_LINES = 8
_END_SECONDS = 10.0
_CHILD = Path(__file__).with_name("recorded_script.py")


@dataclass(frozen=True)
class Request:
    """What to record. script: its path. arguments: its own. device: a device by name. step: 1 is the first.

    timeout: seconds. wants: "operators", to compare them, or "kernels", to see which are launched.
    """

    script: Path
    arguments: tuple[str, ...]
    device: str
    step: int
    timeout: float
    wants: str = "operators"


def shapes(request: Request, out: Path | None) -> dict[str, Any]:
    """Record a step of the script, and compare its operators or predict where its kernels are; returns the report.

    out: a folder that keeps the report as JSON, and what the script printed.
    Raises InputError when there is no report: no script, an error in it, too few steps, no end within the timeout.
    """
    if not request.script.is_file():
        raise InputError(f"{request.script}: no such file; give the Python file that you start the training with")
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror}; choose another folder with --out") from error
    with tempfile.TemporaryDirectory(prefix="xpulab-shapes-") as folder:
        log, result = Path(out or folder, "script.log"), Path(folder, "result.json")
        ended = _run(request, Path(folder, "job.json"), log, result)
        report = _report(request, ended, log, result)
    if request.wants == "kernels":
        report = prediction.predict(report)
    if out is not None:
        (out / f"{request.wants}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def is_right(report: dict[str, Any]) -> bool:
    """Whether no operator is wrong. Raises InputError when none was compared."""
    if not {"right", "wrong"} & report["outcomes"].keys():
        remedy = "give the --step of one that computes with Paddle's operators, in the process of the script"
        raise InputError(f"{report['script']}: in step {report['step']} nothing was compared; {remedy}")
    return "wrong" not in report["outcomes"]


def format_report(report: dict[str, Any]) -> str:
    """The report for a terminal: first what is wrong, then what was not compared, then the rest."""
    order = {"wrong": 0, "not compared": 1, "right": 2}
    rows = sorted(report["operators"], key=lambda row: order[row["outcome"]])
    lines = [f"{'outcome':13} {'called':>6} {'value':>9} {'gradient':>9}  operator, shapes and types"]
    for row in rows:
        numbers = f"{_shown(row['value']):>9} {_shown(row['gradient']):>9}"
        notes = [row["error"], row["reason"], "computed by the CPU" if row["falls_back"] else ""]
        notes += [f"compared with {row['reference']}"] if row["reference"] not in ("", "numpy") else []
        notes += [f"called from {row['caller']}"] if row["outcome"] == "wrong" and row["caller"] else []
        text = "; ".join(note for note in notes if note)
        lines.append(f"{row['outcome']:13} {row['called']:>6} {numbers}  {row['shown']}" + (f"  ({text})" if text else ""))
    return "\n".join([*lines, "", *_summary(report)])


def _summary(report: dict[str, Any]) -> list[str]:
    counted = {"operators": len(report["operators"]), **report["outcomes"]}
    lines = ["value, gradient: the largest error / tolerance; right up to 1"]
    if report["device"] == SIMULATED:
        lines.append("simulated cards compute with the CPU's kernels: this says nothing about a real card")
    if fallbacks := sum(row["falls_back"] for row in report["operators"]):
        lines.append(f"{fallbacks} operators have no kernel for {report['device']} here: the CPU computes them")
    names = [f"{counted[name]} {name}" for name in ("operators", "right", "wrong", "not compared") if name in counted]
    verdict = "NOT right" if "wrong" in counted else "no operator is wrong" if "right" in counted else "nothing was compared"
    step = f"step {report['step']} of {report['script']} on {report['device']}"
    return [*lines, f"{step}: {', '.join(names)}: {verdict}"]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _run(request: Request, job: Path, log: Path, result: Path) -> int | None:
    """Run the script in a process group of its own, of which nothing is left; returns its status, None after the timeout.

    Views are copies where kernels are listed, as recipes for XPUs set it.
    """
    place = request.device if request.device == "cpu" else f"{request.device}:0"
    described = asdict(request) | {"script": str(request.script), "place": place, "result": str(result)}
    job.write_text(json.dumps(described), encoding="utf-8")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    if request.wants == "kernels":
        environment.setdefault("FLAGS_use_stride_kernel", "0")
    if request.device == SIMULATED:
        environment |= sim.environment(1) | {"XPULAB_SIM_HALF": "1"}
    command = [sys.executable, str(_CHILD), str(job)]
    with log.open("wb") as printed, Child(command, stdout=printed, stderr=subprocess.STDOUT, env=environment) as child:
        status = child.wait(request.timeout)
        child.kill(_END_SECONDS)  # with the workers that it started
        return status


def _report(request: Request, ended: int | None, log: Path, result: Path) -> dict[str, Any]:
    """The report of the process. Raises InputError when it has none."""
    step, script = request.step, request.script
    if ended is None:
        text = f"{script}: step {step} was not recorded and compared within {request.timeout:g} s"
        raise InputError(f"{text}; give a larger --timeout, or a smaller model or batch{_last_lines(log)}")
    if not result.is_file():
        raise InputError(f"{script}: its process ended with status {ended} before step {step} was compared{_last_lines(log)}")
    found = json.loads(result.read_text(encoding="utf-8"))
    if found["status"] == "raised":
        command = " ".join(["python", str(script), *request.arguments])
        raise InputError(f"{script}: {found['detail']}, before step {step} was recorded; first make this run: {command}")
    if found["status"] == "ended":
        need = "it needs an optimizer of paddle.optimizer whose step() is called"
        remedy = need if not found["steps"] else f"give --step {found['steps']} or less, or let it take more steps"
        raise InputError(f"{script}: {found['detail']} after {found['steps']} optimizer steps, before step {step}: {remedy}")
    if found["status"] == "failed":
        raise InputError(
            f"{script}: step {step} could not be compared, an error of xpulab, please report it:\n{found['detail']}"
        )
    return {"script": str(script), "arguments": list(request.arguments), "step": step, **found}


def _last_lines(log: Path) -> str:
    """What the script printed last, as an addition to a message."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:] if log.exists() else []
    return "\nits last log lines:\n" + "\n".join(lines) if lines else ""
