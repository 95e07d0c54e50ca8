"""The command `xpulab shapes`: run a script in another process until a step is recorded, and show what the replay found."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from xpulab import sim
from xpulab.child import Child
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.operators import prediction
from xpulab.verdict import RIGHT, UNDECIDED, WRONG

TIMEOUT = 1800.0
"""Seconds that the script, and the comparison, may take."""

_ENOUGH_WORK, _ENOUGH_CALLS = 0.95, 0.9
"""The shares that must have been compared for a verdict."""
_PROGRAM = "it runs a compiled program of paddle.jit.to_static"
_DECIDED_BY = {
    _PROGRAM: "--eager, with which functions of to_static run operator by operator",
    "too large": "a smaller batch, or shorter sequences",
    "the reference is the same kernel": "training in float32",
}
"""By the start of a reason why something was not compared what would let it be."""
_LAUNCHERS = ("paddle.distributed.launch", "torch.distributed.run", "fleetrun", "torchrun", "mpirun")
_END_SECONDS = 10.0
_CHILD = Path(__file__).with_name("recorded_script.py")


@dataclass(frozen=True)
class Request:
    """What to record. script: its path, or a module. arguments: its own. device: a device by name. step: 1 is the first.

    timeout: seconds. wants: "operators", to compare them, or "kernels", to see which are launched. is_module: started as with
    `python -m`. is_launched: whether a launcher was left out. is_eager: to_static does not compile.
    """

    script: str
    arguments: tuple[str, ...]
    device: str
    step: int
    timeout: float
    wants: str = "operators"
    is_module: bool = False
    is_launched: bool = False
    is_eager: bool = False


def started_by(words: Sequence[str], is_module: bool) -> dict[str, Any]:
    """What a command line starts, as fields of Request: `python train.py`, `-m package.module`, or a launcher's line.

    words: without "-m", which is_module says. Raises InputError where no script is found.
    """
    rest = list(words)
    if not is_module and Path(rest[0]).name.startswith("python") and not rest[0].endswith(".py"):
        rest = rest[1:]
        while rest and rest[0].startswith("-") and not is_module:
            is_module = rest.pop(0) == "-m"
    is_launched = bool(rest) and rest[0] in _LAUNCHERS
    if is_launched:
        is_module, rest = False, list(dropwhile(lambda word: not word.endswith(".py"), rest))
    if not rest or not (is_module or Path(rest[0]).is_file()):
        named = rest[0] if rest else " ".join(words)
        raise InputError(f"{named}: no such file; give the Python file that you start the training with, or -m and a module")
    return {"script": rest[0], "arguments": tuple(rest[1:]), "is_module": is_module, "is_launched": is_launched}


def shapes(request: Request, out: Path | None) -> dict[str, Any]:
    """Record a step of the script, and compare its operators or predict where its kernels are; returns the report.

    out: a folder that keeps the report as JSON, and what the script printed.
    Raises InputError when there is no report: no script, an error in it, too few steps, no end within the timeout.
    """
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror}; choose another folder with --out") from error
    with tempfile.TemporaryDirectory(prefix="xpulab-shapes-") as folder:
        log, result = Path(out or folder, "script.log"), Path(folder, "result.json")
        ended = _run(request, Path(folder, "job.json"), log, result)
        report = _report(request, ended, result)
    if request.wants == "kernels":
        report = prediction.predict(report)
    else:
        report |= judged(report)
    if out is not None:
        (out / f"{request.wants}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def judged(report: dict[str, Any]) -> dict[str, Any]:
    """The verdict "right", "wrong" or "undecided", the shares of calls and of work that were compared, and what is missing.

    calls, work: from 0 to 1, without operators whose results are random. missing: by reason the share of work, largest first.
    Raises InputError when the step called no operator that can be compared.
    """
    rows = [row for row in report["operators"] if row["calls"]]
    if not rows:
        remedy = "give the --step of one that computes with Paddle's operators, in the process of the script"
        raise InputError(f"{report['script']}: in step {report['step']} nothing was compared; {remedy}")
    calls, work = (sum(row[name] for row in rows) for name in ("calls", "work"))
    compared = sum(row["calls"] for row in rows if row["outcome"] != "not compared")
    done = sum(row["compared_work"] for row in rows)
    missing = dict[str, float]()
    for row in sorted(rows, key=lambda row: row["compared_work"] - row["work"]):
        if row["work"] > row["compared_work"] or row["outcome"] == "not compared":
            reason = _PROGRAM if row["is_program"] else row["reason"] or "its gradient was not compared"
            missing[reason] = missing.get(reason, 0.0) + (row["work"] - row["compared_work"]) / max(work, 1.0)
    shares = {"calls": compared / calls, "work": done / max(work, 1.0)}
    is_open = _PROGRAM in missing or shares["work"] < _ENOUGH_WORK or shares["calls"] < _ENOUGH_CALLS
    verdict = WRONG if WRONG in report["outcomes"] else UNDECIDED if is_open else RIGHT
    return {"verdict": verdict, **shares, "missing": missing}


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
    lines += [f"{call}: no label of this batch counts: its loss is a mean of nothing" for call in report["without_labels"]]
    if report["verdict"] == UNDECIDED:
        lines += [f"not compared, {_percent(share)} of the work: {reason}" for reason, share in report["missing"].items()]
        decided = [remedy for start, remedy in _DECIDED_BY.items() if any(each.startswith(start) for each in report["missing"])]
        lines.append(
            "what would decide it: " + ("; ".join(decided) or "another --step, or a smaller model of the same operators")
        )
    names = [f"{counted[name]} {name}" for name in ("operators", "right", "wrong", "not compared") if name in counted]
    shares = f"{_percent(report['calls'])} of the calls and {_percent(report['work'])} of the floating-point work were compared"
    verdict = {WRONG: "NOT right", RIGHT: "no operator is wrong"}.get(report["verdict"], UNDECIDED)
    step = f"step {report['step']} of {report['script']} on {report['device']}"
    return [*lines, f"{step}: {', '.join(names)}; {shares}: {verdict}"]


def _percent(share: float) -> str:
    """Never 100 % of less than all."""
    return f"{math.floor(share * 1000) / 10:g} %"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _run(request: Request, job: Path, log: Path, result: Path) -> int | None:
    """Run the script in a process group of its own, of which nothing is left; returns its status, None after the timeout.

    What it prints goes to standard error as it comes, and to the log. Views are copies where kernels are listed, as recipes for
    XPUs set it.
    """
    place = request.device if request.device == "cpu" else f"{request.device}:0"
    job.write_text(json.dumps(asdict(request) | {"place": place, "result": str(result)}), encoding="utf-8")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    if request.wants == "kernels":
        environment.setdefault("FLAGS_use_stride_kernel", "0")
    if request.device == SIMULATED:
        environment |= sim.environment(1) | {"XPULAB_SIM_HALF": "1"}
    command, end = [sys.executable, str(_CHILD), str(job)], time.monotonic() + request.timeout
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
    with log.open("wb") as kept, Child(command, **piped) as child:
        for _, chunk in child.read():
            kept.write(chunk)
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
            if time.monotonic() > end:
                break
        status = child.wait(end - time.monotonic())
        child.kill(_END_SECONDS)  # with the workers that it started
        return status


def _report(request: Request, ended: int | None, result: Path) -> dict[str, Any]:
    """The report of the process. Raises InputError when it has none."""
    step, script = request.step, request.script
    if ended is None:
        text = f"{script}: step {step} was not recorded and compared within {request.timeout:g} s"
        raise InputError(f"{text}; give a larger --timeout, or a smaller model or batch")
    if not result.is_file():
        raise InputError(f"{script}: its process ended with status {ended} before step {step} was compared")
    found = json.loads(result.read_text(encoding="utf-8"))
    if found["status"] == "raised":
        start = ["python", *(["-m"] if request.is_module else []), script, *request.arguments]
        remedy = f"first make this run: {' '.join(start)}"
        if "no known parent package" in found["detail"]:
            remedy = f"it is part of a package: xpulab shapes -m {'.'.join(Path(script).with_suffix('').parts)}"
        elif request.is_launched:
            remedy += "; it runs as one process here, so each parallel degree must be 1"
        raise InputError(f"{script}: {found['detail']}, before step {step} was recorded; {remedy}")
    if found["status"] == "ended":
        need = "it needs an optimizer of paddle.optimizer whose step() is called in the process of the script"
        remedy = need if not found["steps"] else f"give --step {found['steps']} or less, or let it take more steps"
        raise InputError(f"{script}: {found['detail']} after {found['steps']} optimizer steps, before step {step}: {remedy}")
    if found["status"] == "static":
        what = "its steps are programs that paddle.static.Executor runs, and no operator of a program can be called again"
        instead = "let it run without paddle.enable_static(), or see where its kernels would be: --for xpu"
        raise InputError(f"{script}: {what}; {instead}")
    if found["status"] == "failed":
        raise InputError(
            f"{script}: step {step} could not be compared, an error of xpulab, please report it:\n{found['detail']}"
        )
    return {"script": script, "arguments": list(request.arguments), "step": step, **found}
