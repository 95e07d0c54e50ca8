"""How long a user waits for the first answer: of a run, and of the first cells of each chapter in a warm kernel.

    python tools/benchmarks/first_answer.py [--times 3] [--cells] [-- OPTIONS OF xpulab run]

A run: the seconds from the start of `xpulab run` until result.json holds the first judged check; the run is then interrupted.
Cold: no fork server runs; files may be in the cache of the operating system. Warm: a fork server runs that has imported
everything, as in a terminal of `xpulab lab`.
--cells: of each chapter the seconds until its warm kernel is ready, and of its cells up to the imports, each as JupyterLab
would run it. Nothing here is a test: times depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
import psutil
from jupyter_client import KernelManager

from xpulab import files, warm
from xpulab.harness.sections import INJECTED
from xpulab.warm import kernels

_POLL_SECONDS = 0.02
_LIMIT_SECONDS = 120.0


def main() -> None:
    """Print seconds, a line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("options", nargs="*", default=["--device", "cpu"])
    asked = parser.parse_args()
    ordinary = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}
    for _ in range(asked.times):
        print(f"cold: first judged check after {first_check(asked.options, ordinary)}", flush=True)
    with warm.ForkServer() as server:
        warm.answers(server.address, _LIMIT_SECONDS)
        for _ in range(asked.times):
            answer = first_check(asked.options, {**ordinary, warm.ADDRESS: server.address})
            print(f"warm: first judged check after {answer}", flush=True)
        if asked.cells:
            os.environ.update(kernels.environment(server, ordinary))
            for path in sorted(files.NOTEBOOKS.glob("*.ipynb")):
                print(f"{path.stem}: {first_cells(path)}", flush=True)


def first_check(options: list[str], environment: Mapping[str, str]) -> str:
    """Start a run, wait for its first check, interrupt it; returns seconds and the check as text."""
    with tempfile.TemporaryDirectory(prefix="xpulab-") as scratch:
        out = Path(scratch) / "run"
        command = [sys.executable, "-m", "xpulab", "run", *options, "--out", str(out)]
        began = time.monotonic()
        with subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL) as process:
            found = None
            while found is None and process.poll() is None and time.monotonic() - began < _LIMIT_SECONDS:
                time.sleep(_POLL_SECONDS)
                found = _judged(out / "result.json")
            seconds = time.monotonic() - began
            own = psutil.Process(process.pid).cpu_times()
            process.send_signal(signal.SIGINT)
        return f"{seconds:.2f} s, of which the command itself computed {own.user + own.system:.2f} s: {found}"


def _judged(result: Path) -> str | None:
    """The first check in a result, with its notebook; None while there is none."""
    try:
        notebooks = json.loads(result.read_text(encoding="utf-8"))["notebooks"]
    except (OSError, ValueError):
        return None
    judged = (f"{check['name']} ({notebook['name']})" for notebook in notebooks for check in notebook["checks"])
    return next(judged, None)


def first_cells(path: Path) -> str:
    """Start a warm kernel, run the cells up to the imports; returns the seconds of each as text."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and INJECTED not in cell.metadata.get("tags", [])]
    last = next(number for number, cell in enumerate(code, start=1) if "xpulab.checks import" in cell.source)
    with tempfile.TemporaryDirectory(prefix="xpulab-") as scratch:
        manager = KernelManager(kernel_name=kernels.NAME, transport="ipc", ip=f"{scratch}/kernel")
        began = time.monotonic()
        manager.start_kernel(cwd=str(path.parent))
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=_LIMIT_SECONDS)
            text = f"ready {time.monotonic() - began:.2f} s"
            for cell in code[: last + 1]:
                began = time.monotonic()
                client.execute_interactive(cell.source, timeout=_LIMIT_SECONDS, output_hook=lambda message: None)
                text += f", {time.monotonic() - began:.2f}"
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    return text


if __name__ == "__main__":
    main()
