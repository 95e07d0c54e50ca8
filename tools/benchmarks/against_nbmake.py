"""Says how long the notebooks take with `xpulab run` and with plain nbmake, four at a time.

    .venv/bin/python tools/benchmarks/against_nbmake.py [TIMES]

Each is run TIMES (1) in turn, on the CPU at level quick, and each time is printed. Nothing here is a test: times depend on the
machine and on what else it does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xpulab import files

PLAIN = ["-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={files.ROOT}", "-q"]


def seconds_of(name: str, command: list[str], environment: dict[str, str]) -> float:
    """Run it in a folder of its own; a run that is not green is said to be none."""
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        started = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
        took = time.monotonic() - started
    verdict = "" if done.returncode == 0 else f"  NOT GREEN, exit code {done.returncode}: {done.stdout[-300:]}"
    print(f"{name:<14}{took:7.1f} s{verdict}", flush=True)
    return took


def main() -> None:
    """Print a line a run, and the ratio of the best."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    run = [sys.executable, "-m", "xpulab", "run", "--device", "cpu", "--out"]
    nbmake = [sys.executable, "-m", "pytest", *PLAIN, "--nbmake", "-n", "4", str(files.NOTEBOOKS)]
    threads = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    ours, theirs = [], []
    for _ in range(times):
        ours.append(seconds_of("xpulab run", [*run, str(Path("out"))], threads))
        theirs.append(seconds_of("nbmake -n 4", nbmake, threads))
    print(f"best of {times}: nbmake takes {min(theirs) / min(ours):.2f} times as long")


if __name__ == "__main__":
    main()
