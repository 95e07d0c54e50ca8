"""Injects each fault of a node into a fleet of three nodes with a real Slurm, again and again: is the right node named?

    python tools/benchmarks/fleet_faults.py [--runs 5] [--fault NAME]

It needs Debian's slurm-wlm and munge, and root for the full disk. Each fault hits another node each time.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2] / "tests" / "fleet"
sys.path[:0] = [str(TESTS), str(TESTS / "cluster")]

slurm_cluster: Any = importlib.import_module("slurm_cluster")
faulty_fleet: Any = importlib.import_module("faulty_fleet")
FAULTS = faulty_fleet.FAULTS


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--fault", action="append", choices=sorted(FAULTS))
    given = arguments.parse_args()
    if missing := slurm_cluster.missing():
        raise SystemExit(f"needs {', '.join(missing)}")
    named = 0
    chosen = given.fault or list(FAULTS)
    with tempfile.TemporaryDirectory(prefix="xpulab-fleet-") as folder:
        (Path(folder) / "slurm").mkdir()
        with slurm_cluster.cluster(Path(folder) / "slurm") as cluster:
            for name in chosen:
                for number in range(given.runs):
                    named += _is_named(cluster, FAULTS[name], name, number, Path(folder))
    print(f"{named} of {len(chosen) * given.runs} named")
    raise SystemExit(0 if named == len(chosen) * given.runs else 1)


def _is_named(cluster: Any, fault: Any, name: str, number: int, folder: Path) -> bool:
    node = slurm_cluster.NODES[number % len(slurm_cluster.NODES)]
    cluster.restore()
    started = time.monotonic()
    with fault.inject(cluster, node):
        code, text, record = faulty_fleet.fleet_run(cluster, folder / f"{name.replace(' ', '-')}-{number}", *fault.run)
    problems = faulty_fleet.wrong(fault, node, code, record) if record else [f"exit code {code}: {text}"]
    seconds = time.monotonic() - started
    print(f"{name}, {node}, {seconds:.0f} s: {'NOT named: ' + '; '.join(problems) if problems else 'named'}", flush=True)
    for each in record["nodes"] if record else ():
        print(f"    {each['status']} {each['answer']['node']}: {each['sentence']}", flush=True)
    cluster.restore()
    return not problems


if __name__ == "__main__":
    main()
