"""The fork server of a run: it imports Paddle and PaddleNLP while this process reads and plans the notebooks.

On a GPU or an XPU it was never measured that a fork is safe, so there is none: kernels start cold.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from xpulab import warm
from xpulab.devices import starts_cold
from xpulab.errors import InputError
from xpulab.harness import places
from xpulab.harness.run_folder import run_folder
from xpulab.messages import N_
from xpulab.warm import kernels

IMPORT_SECONDS = 120.0
"""How long the imports of Paddle and PaddleNLP may take, once for all notebooks."""


class ImportHangs(InputError):
    """Paddle or PaddleNLP cannot be imported within IMPORT_SECONDS: no notebook could run."""


@dataclass(frozen=True)
class Started:
    """What a run's kernels start from. folder: for all temporary files of the run. server: None when they start cold."""

    folder: Path
    server: warm.ForkServer | None


@contextmanager
def started(device: str, cold: bool = False) -> Iterator[Started]:
    """Start a fork server, which imports in the background, and end it with the block.

    When this process is killed, nothing of the kernels, their ranks and their files stays (xpulab.harness.run_folder).
    Raises InputError where temporary files or shared memory cannot be written.
    """
    places.require_limits()
    places.require(Path(tempfile.gettempdir()), places.SHARED_MEMORY)
    with run_folder() as folder:
        places.use_home(folder / "home")
        if cold or starts_cold(device):
            yield Started(folder, None)
            return
        with warm.ForkServer(within=folder, variables={warm.RUN_FOLDER: str(folder)}) as server:
            yield Started(folder, server)


@contextmanager
def kernel_environment(device: str, before: Started | None = None) -> Iterator[dict[str, str]]:
    """The variables of the kernels: where a fork is safe those of a fork server.

    before: what `started` gave before; it ends when its own block does. Without it one is started, and ends with this block.
    Raises ImportHangs when it does not import Paddle and PaddleNLP within IMPORT_SECONDS.
    """
    with nullcontext(before) if before else started(device) as own:
        inherited = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}  # another notebook's
        inherited |= {warm.RUN_FOLDER: str(own.folder)}
        if own.server and _is_ready(own.server):
            inherited = kernels.environment(own.server.address, own.folder, inherited)
        yield inherited


def _is_ready(server: warm.ForkServer) -> bool:
    """Wait until it has imported everything, so that this counts for no notebook's time; False when it cannot.

    Raises ImportHangs when it takes too long.
    """
    try:
        return warm.answers(server.address, IMPORT_SECONDS)
    except warm.ForkServerGone:  # a broken installation: each notebook shows the error itself
        return False
    except TimeoutError as error:
        late = N_("importing Paddle and PaddleNLP did not end within {limit} s", limit=f"{IMPORT_SECONDS:.0f}")
        raise ImportHangs(N_("{late}; `xpulab doctor` shows cause and remedy", late=late)) from error
