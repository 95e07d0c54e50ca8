"""Where the kernels of a step would be computed on a P800, which this machine need not have: always a prediction.

`kernels_here` is called in the script's process; `predict` and `format_prediction` outside of it, without Paddle.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xpulab import sim
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.operators import kernel_table
from xpulab.operators.kernel_table import CARD, CPU, ERROR, MAYBE, UNKNOWN, KernelTable

if TYPE_CHECKING:
    from xpulab.operators.kernel_log import Launch

_ORDER = (ERROR, CPU, UNKNOWN, MAYBE, CARD)
_MEANING = {
    ERROR: "no kernel on the card, and the CPU has none of this type: it raises",
    CPU: "the CPU computes it silently, with two copies and a wait each time",
    UNKNOWN: "in no table at hand",
    MAYBE: "on the card in the later list only",
    CARD: "on the card",
}


def kernels_here(launches: Sequence[Launch], device: str) -> dict[str, Any]:
    """What the script's process reports: the kernels of its step, what the CPU has, and the list of a wheel for XPU or None.

    Raises RuntimeError when the log shows no kernel: another release of Paddle may word it otherwise.
    """
    import paddle
    from paddle.base import core

    from xpulab.operators import kernel_log

    if not launches:
        raise RuntimeError(f"Paddle {paddle.__version__} logged no choice of a kernel in this step: its log has other words")
    is_xpu = hasattr(core, "get_xpu_device_op_list")
    on_cpu = kernel_log.cpu_types()
    if device == SIMULATED:  # its kernels of half types stand among those of the CPU
        for name, dtype in sim.half_kernels().added:
            on_cpu[name] = [each for each in on_cpu.get(name, []) if each != dtype]
    return {
        "device": device,
        "paddle": paddle.__version__,
        "kernels": [asdict(launch) | {"cpu_types": on_cpu.get(launch.name, [])} for launch in launches],
        "wheel": kernel_table.of_wheel(core, paddle.__version__) if is_xpu else None,
    }


def save_kernels(path: Path) -> None:
    """Write the kernels of this process's Paddle to a new file. Raises InputError where it is not built for XPU."""
    import paddle
    from paddle.base import core

    stored = json.dumps(kernel_table.of_wheel(core, paddle.__version__), indent=1) + "\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(stored)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; name another file with --save-kernels") from error


def source_of(target: str, kernels: Path | None, paddle_source: Path | None) -> KernelTable | None:
    """The table that was asked for; None: that of the wheel where it is built for XPU, else our own. Raises InputError."""
    if target != "xpu":
        raise InputError(f"--for {target}: only xpu can be predicted; other devices have no public list of kernels")
    if kernels and paddle_source:
        raise InputError("--kernels and --paddle-source are two sources of the same: give one of them")
    if kernels:
        return kernel_table.from_file(kernels)
    return kernel_table.from_source(paddle_source) if paddle_source else None


def predict(report: Mapping[str, Any], table: KernelTable | None) -> dict[str, Any]:
    """The report with `where` and `instead` for each kernel, the table's source and how many kernels are where."""
    wheel = report["wheel"]
    table = table or (kernel_table.from_stored(wheel, "this wheel for XPU") if wheel else kernel_table.own_table())
    rows = []
    for kernel in report["kernels"]:
        where = table.where(kernel["name"], kernel["old_name"], kernel["dtype"], frozenset(kernel["cpu_types"]))
        remedy = "" if where in (CARD, MAYBE) else table.instead.get(kernel["name"], "")
        rows.append({**kernel, "where": where, "instead": remedy})
    rows.sort(key=lambda row: (_ORDER.index(row["where"]), -row["calls"]))
    kept = {name: value for name, value in report.items() if name != "wheel"}
    return {**kept, "kernels": rows, "source": table.source, "counted": dict(Counter(row["where"] for row in rows))}


def format_places(report: Mapping[str, Any]) -> str:
    """How many kernels are where, and each that is not on the card, with its line and what to write instead."""
    rows = report["kernels"]
    lines = []
    for where in _ORDER:
        of_kind = [row for row in rows if row["where"] == where]
        if of_kind:
            calls = sum(row["calls"] for row in of_kind)
            lines.append(f"{where:8} {len(of_kind):>4} kernels, {calls} calls: {_MEANING[where]}")
        lines += [_line(row) for row in (() if where == CARD else of_kind)]
    return "\n".join(lines)


def format_prediction(report: Mapping[str, Any]) -> str:
    """The prediction for a terminal: where the kernels are, what really fell back, and what it was predicted from."""
    rows = report["kernels"]
    lines = [format_places(report), ""]
    if fell_back := [row for row in rows if row["fell_back"]]:
        lines.append(f"really computed by the CPU in this step on {report['device']}: {_named(fell_back)}")
    return "\n".join(
        [
            *lines,
            f"step {report['step']} of {report['script']}: {len(rows)} kernels with their types, "
            f"recorded with Paddle {report['paddle']} on {report['device']}",
            f"predicted from {report['source']}; not run on a card. There, GLOG_v=1 shows each kernel that the CPU computes",
        ]
    )


def _named(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{row['name']} {row['dtype']} ({row['fell_back']})" for row in rows[:8]]
    return ", ".join(shown) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")


def _line(row: Mapping[str, Any]) -> str:
    remedy = f"; instead: {row['instead']}" if row["instead"] else ""
    return f"    {row['name']} {row['dtype']}, {row['calls']} calls, {row['caller'] or 'called from C++'}{remedy}"
