"""The fork server of a run: started before anything else is imported, or one that runs already and fits.

It imports Paddle and PaddleNLP while this process reads and plans the notebooks. On a GPU or an XPU it was never measured that
a fork is safe, so there is none.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xpulab import warm
from xpulab.devices import wheel_device
from xpulab.harness.run_folder import run_folder

_ANSWER_SECONDS = 10.0
"""How long a fork server that runs already may take; it may still import."""

_FITS, _OTHER = 0, 3
"""Exit codes of a worker that was asked."""


@dataclass(frozen=True)
class Started:
    """What a run's kernels start from.

    folder: for all temporary files of the run. server: of this run, None when there is none. address: that of the server which
    the kernels use, None when they start cold.
    """

    folder: Path
    server: warm.ForkServer | None
    address: str | None


@contextmanager
def started(device: str, cold: bool = False) -> Iterator[Started]:
    """Start a fork server, which imports in the background, and end it with the block.

    One that runs already (warm.ADDRESS in the environment, as in a terminal of `xpulab lab`) is used when it is of this
    installation; it stays.
    When this process is killed, nothing of the kernels, their ranks and their files stays (xpulab.harness.run_folder): a server
    of another command kills a worker when the connection to it is closed.
    """
    with run_folder() as folder:
        if cold or wheel_device(device) != "cpu":
            yield Started(folder, None, None)
            return
        if (address := os.environ.get(warm.ADDRESS)) and fits(address):
            yield Started(folder, None, address)
            return
        with warm.ForkServer(within=folder, variables={warm.RUN_FOLDER: str(folder)}) as server:
            yield Started(folder, server, server.address)


def fits(address: str) -> bool:
    """Whether a fork server answers there that runs this Python and has imported what a run needs."""
    try:
        with warm.fork(
            address,
            f"{__name__}:say_whether_it_fits",
            json.dumps([sys.prefix, warm.PRELOAD]).encode(),
            environment={**os.environ, "PYTHONPATH": _own_path()},
            cwd="/",
            stdout=1,
            stderr=2,
            time_limit=_ANSWER_SECONDS,
        ) as worker:
            return worker.wait(_ANSWER_SECONDS) == _FITS
    except (warm.ForkServerGone, TimeoutError):
        return False


def say_whether_it_fits(payload: bytes) -> None:
    """In a worker: exit with 0 when it is of the installation and has the modules that the payload names."""
    prefix, modules = json.loads(payload)
    raise SystemExit(_FITS if sys.prefix == prefix and set(modules) <= set(sys.modules) else _OTHER)


def _own_path() -> str:
    """Where this package is, first, so that the worker asks these sources."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
