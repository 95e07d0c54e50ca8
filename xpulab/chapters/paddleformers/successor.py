"""PaddleNLP's successor by its one name, its log, and what a process needs after one of its loads has failed.

The name of the package stands in xpulab.records.environments only: it was changed once, and will be again.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from xpulab.records.environments import SUCCESSOR as NAME


def module(path: str) -> Any:
    """A module of the package, "trainer" for paddleformers.trainer; its first import writes no advice and no warning."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    logging.disable(logging.WARNING)
    try:
        with quiet():
            return importlib.import_module(f"{NAME}.{path}")
    finally:
        logging.disable(logging.NOTSET)


def silence_log() -> None:
    """Silence the logs of the package and of Paddle's checkpoints, which write colours, times and paths into the outputs.

    What matters in a log must be a check.
    """
    from xpulab.chapters.shared import workarounds

    module("utils.log").logger.set_level("CRITICAL")
    workarounds.silence_checkpoint_log()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside the block nothing is printed: progress bars, and the trace that Paddle prints before it raises."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def forget_failed_load() -> None:
    """After a load that raised, let this process load again; without it each later load looks for the names of the first one.

    dist.load_state_dict keeps what it read of a folder in a variable of its module, and clears it at its end only.
    Source: Paddle 3.3.1, distributed/flex_checkpoint/dcp/load_state_dict.py, _metadata_manager; measured.
    """
    importlib.import_module("paddle.distributed.flex_checkpoint.dcp.load_state_dict")._metadata_manager.clear()


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the name of its error; afterwards this process can load again."""
    try:
        with quiet():
            return call()
    except Exception as error:  # of any class: which one is the result
        return type(error).__name__
    finally:
        forget_failed_load()
