"""Where the kernels of a step would be computed on a P800, which this machine need not have: always a prediction.

`kernels_here` is called in the script's process; `predict` and `format_prediction` outside of it, without Paddle.
data/p800_kernels.yaml has the kernels of training steps of language models, from two lists of Paddle's XPU build. Paddle
computes a kernel on the XPU when it is on the list with the type. Otherwise it takes the CPU's kernel, and raises where the CPU
has none of that type. Source: phi/core/kernel_factory.cc, SelectKernelOrThrowError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from xpulab import files, sim
from xpulab.devices import SIMULATED

CARD, MAYBE, CPU, ERROR, UNKNOWN = "card", "card?", "CPU", "error", "unknown"
_MEANING = {
    ERROR: "no kernel on the card, and the CPU has none of this type: it raises",
    CPU: "the CPU computes it silently, with two copies and a wait each time",
    UNKNOWN: "in no table at hand",
    MAYBE: "on the card in the later list only",
    CARD: "on the card",
}
"""Where a kernel is computed, the worst first."""


def where(kernel: str, dtype: str, cpu_types: Sequence[str]) -> str:
    """Where a P800 computes a kernel of this type. cpu_types: those of which the CPU has this kernel."""
    entry = _table()["kernels"].get(kernel)
    if entry is None:
        return UNKNOWN
    if dtype in entry.get("listed", "").split():
        return CARD
    if dtype in entry.get("later", "").split():
        return MAYBE
    return CPU if dtype in cpu_types else ERROR


def instead_of(kernel: str) -> str:
    """What to write instead of the operator of a kernel, "" where nothing is known."""
    return _table()["kernels"].get(kernel, {}).get("instead", "")


@cache
def _table() -> Any:
    return files.load_yaml(files.data("p800_kernels.yaml"), files.data("schema", "p800_kernels.schema.json"))


def kernels_here(launches: Sequence[Any], device: str) -> dict[str, Any]:
    """What the script's process reports: its kernel_log.Launch objects as data, with the types that the CPU has them for.

    Raises RuntimeError when the log shows no kernel: another release of Paddle may word it otherwise.
    """
    import paddle

    from xpulab.operators import kernel_log

    if not launches:
        raise RuntimeError(f"Paddle {paddle.__version__} logged no choice of a kernel in this step: its log has other words")
    on_cpu = kernel_log.cpu_types()
    if device == SIMULATED:  # its kernels of half types stand among those of the CPU
        for name, dtype in sim.half_kernels():
            on_cpu[name] = [each for each in on_cpu.get(name, []) if each != dtype]
    kernels = [asdict(launch) | {"cpu_types": on_cpu.get(launch.name, [])} for launch in launches]
    return {"device": device, "paddle": paddle.__version__, "kernels": kernels}


def predict(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report with `where` and `instead` for each kernel, the table's source and how many kernels are where."""
    rows = []
    for kernel in report["kernels"]:
        place = where(kernel["name"], kernel["dtype"], kernel["cpu_types"])
        rows.append({**kernel, "where": place, "instead": "" if place in (CARD, MAYBE) else instead_of(kernel["name"])})
    rows.sort(key=lambda row: (list(_MEANING).index(row["where"]), -row["calls"]))
    return {**report, "kernels": rows, "source": _table()["source"], "counted": dict(Counter(row["where"] for row in rows))}


def format_places(report: Mapping[str, Any]) -> str:
    """How many kernels are where, and each that is not on the card, with its line and what to write instead."""
    lines = []
    for place, meaning in _MEANING.items():
        rows = [row for row in report["kernels"] if row["where"] == place]
        if rows:
            lines.append(f"{place:8} {len(rows):>4} kernels, {sum(row['calls'] for row in rows)} calls: {meaning}")
        lines += [_line(row) for row in (() if place == CARD else rows)]
    return "\n".join(lines)


def format_prediction(report: Mapping[str, Any]) -> str:
    """The prediction for a terminal: where the kernels are, what really fell back, and what it was predicted from."""
    lines = [format_places(report), ""]
    calls, unknown = (
        sum(row["calls"] for row in report["kernels"] if row["where"] in names) for names in (_MEANING, (UNKNOWN,))
    )
    lines.append(f"{100 * unknown / calls:.1f} % of the calls are of kernels in no table at hand: nothing is said of them")
    if fell_back := [f"{row['name']} {row['dtype']} ({row['fell_back']})" for row in report["kernels"] if row["fell_back"]]:
        lines.append(f"really computed by the CPU in this step on {report['device']}: {', '.join(fell_back)}")
    lines += [
        f"step {report['step']} of {report['script']}: {len(report['kernels'])} kernels with their types, "
        f"recorded with Paddle {report['paddle']} on {report['device']}",
        f"predicted from {report['source']}; not run on a card. There, GLOG_v=1 shows each kernel that the CPU computes",
    ]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    remedy = f"; instead: {row['instead']}" if row["instead"] else ""
    return f"    {row['name']} {row['dtype']}, {row['calls']} calls, {row['caller'] or 'called from C++'}{remedy}"
