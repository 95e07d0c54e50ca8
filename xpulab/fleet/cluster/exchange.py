"""A node's task in `xpulab fleet links`: its ranks exchange a known tensor with those of other nodes, and compare what came.

`xpulab fleet exchange` is this task. Paddle's own launcher starts the ranks as it starts a training; as a file, this is one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

PREFIX = "xpulab-links: "
"""What a line begins with that says why a group is red."""

ELEMENTS = 1 << 20
_MODULUS = 1009
"""Values are whole numbers below it, so that a sum of 16,000 ranks is exact in float32."""
_ENDS_WITHIN = 10.0


def task(master: str, nodes: int, cards: int, seconds: float) -> int:
    """Run the ranks of this node, and say why they failed; returns the exit code.

    master: "address:port" on the first node. cards: ranks of each node. seconds: for all of it.
    """
    from xpulab.child import Child, python_module

    with tempfile.TemporaryDirectory(prefix="xpulab-links-") as name:
        launch = python_module("paddle.distributed.launch", "--master", master, "--nnodes", str(nodes))
        launch += ["--nproc_per_node", str(cards), "--log_dir", name, __file__]
        with Child(launch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
            code = launcher.wait(seconds)
            if code is None:
                launcher.send_signal(signal.SIGTERM)  # it then ends its ranks
                launcher.wait(_ENDS_WITHIN)
        lines = [
            line for log in sorted(Path(name).glob("workerlog.*")) for line in log.read_text(errors="replace").splitlines()
        ]
    why = next((line for line in lines if line.startswith(PREFIX)), "")
    if code != 0:
        last = next((line.strip() for line in reversed(lines) if line.strip()), "its ranks printed nothing")
        ended = f"did not end within {seconds:g} s" if code is None else f"ended with {code}"
        print(why or f"{PREFIX}{os.environ.get('SLURMD_NODENAME', '')} {ended}: {last}", flush=True)
    return 1 if code is None else code


def rank() -> int:
    """Be one rank: gather what all ranks have, sum it, and compare both with what is known; returns the exit code."""
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    if dist.get_world_size() == 1:  # a node with one rank: that it starts is all there is to see
        return 0
    mine = paddle.to_tensor(known(dist.get_rank()))
    gathered: list[paddle.Tensor] = []
    dist.all_gather(gathered, mine)
    total = mine.clone()
    dist.all_reduce(total)
    why = wrong([each.numpy() for each in gathered], total.numpy())
    if why:
        print(f"{PREFIX}{os.environ.get('SLURMD_NODENAME', '')} rank {dist.get_rank()}: {why}", flush=True)
    dist.barrier()  # no rank ends while another one still receives from it
    return 1 if why else 0


def known(sender: int) -> np.ndarray:
    """What a rank sends: ELEMENTS values of float32, others at each place and of each rank."""
    return ((np.arange(ELEMENTS) * 31 + sender * 7 + 1) % _MODULUS).astype("float32")


def wrong(gathered: Sequence[np.ndarray], total: np.ndarray) -> str:
    """What is wrong with what this rank has, "" when nothing is. gathered: of each rank. total: their sum."""
    for sender, got in enumerate(gathered):
        if differ := int((got != known(sender)).sum()):
            return f"{differ} of {ELEMENTS} values of rank {sender} differ"
    expected = np.sum([known(sender) for sender in range(len(gathered))], axis=0)
    differ = int((total != expected).sum())
    return f"{differ} of {ELEMENTS} sums of all ranks differ" if differ else ""


if __name__ == "__main__":
    sys.exit(rank())
