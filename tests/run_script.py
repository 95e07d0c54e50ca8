"""What a worker of the fork server runs for a test: a script, as `python SCRIPT ARGUMENT ...` does."""

from __future__ import annotations

import json
import os
import runpy
import sys


def run(payload: bytes) -> None:
    """Run the script; payload: its path and its arguments as JSON. The environment says how many simulated cards it has."""
    from paddle.distributed import parallel

    parallel._global_parallel_env = None  # get_world_size() answers for this rank, not for the fork server
    if cards := os.environ.get("XPULAB_SIM_CARDS"):
        from xpulab import sim  # the fork server had imported Paddle before anything could name the plug-in

        sim.load(int(cards))
    script, *arguments = json.loads(payload)
    sys.argv[:] = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
