"""The process in which an installation is tried: it imports Paddle, computes on each card, and imports PaddleNLP.

    python probe_process.py DEVICE [STEP_TO_SKIP ...]

xpulab.doctor.probe starts it by its path, so that an import that crashes or hangs ends this process only. Standard output
carries a JSON object for the beginning and the end of each step; whatever a library prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

IMPORT_PADDLE = "import paddle"
IMPORT_PADDLENLP = "import paddlenlp"
PADDLENLP = ("paddlenlp.transformers", "paddlenlp.data", "paddlenlp.trainer", "paddlenlp.peft", "paddlenlp.trl")
"""What the chapters use of PaddleNLP."""

_SIDE = 64
_KINDS = {"gpu": "cuda", "xpu": "xpu"}


class WrongResult(ArithmeticError):
    """A card computed something else than numpy."""


def main(device: str, skipped: list[str]) -> None:
    """Try each step that is not skipped; nothing follows an import of Paddle that failed."""
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=False)
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name, attempt in _steps(device):
        if name in skipped:
            continue
        _send(report, name=name, event="begin")
        started = time.monotonic()
        try:
            found = attempt()
        except BaseException as error:  # an import may also end the process by SystemExit
            _send(report, name=name, event="end", outcome="raised", detail=_in_one_line(error), message=_messages(error))
            if name == IMPORT_PADDLE:
                return
        else:
            seconds = round(time.monotonic() - started, 1)
            _send(report, name=name, event="end", outcome="ok", detail=f"{seconds} s", found=found)


def _steps(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The steps in their order; the cards are counted once Paddle has been imported."""
    yield IMPORT_PADDLE, _import_paddle
    for place in _places(device):
        yield place, partial(_compute, place)
    yield IMPORT_PADDLENLP, _import_paddlenlp


def _import_paddle() -> dict[str, Any]:
    """Import Paddle; returns its facts."""
    import paddle  # noqa: F401 - what it raises is reported with all its causes

    from xpulab.doctor.paddle_facts import facts_of_imported

    return asdict(facts_of_imported())


def _places(device: str) -> list[str]:
    """What paddle.set_device takes, for each card that Paddle sees."""
    import paddle

    if device == "cpu":
        return ["cpu"]
    if device in _KINDS:
        count = getattr(paddle.device, _KINDS[device]).device_count()
    else:
        count = paddle.base.core.get_custom_device_count(device)
    return [f"{device}:{card}" for card in range(count)]


def _compute(place: str) -> None:
    """Multiply small integers on a card, which every type of number holds exactly, and compare with numpy."""
    import numpy as np
    import paddle

    paddle.set_device(place)
    given = (np.arange(_SIDE * _SIDE).reshape(_SIDE, _SIDE) % 4).astype("float32")
    product = paddle.to_tensor(given) @ paddle.to_tensor(given)
    where = str(product.place)
    if place not in where:
        raise WrongResult(f"the product is on {where}, not on {place}")
    different = int((product.numpy() != given @ given).sum())
    if different:
        raise WrongResult(f"{different} of {_SIDE * _SIDE} elements of a matrix product differ from numpy's")


def _import_paddlenlp() -> None:
    for module in PADDLENLP:
        importlib.import_module(module)


def _send(report: Any, **event: Any) -> None:
    """Write an event, with how much was printed until now: what is printed between two events belongs to the step."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what C libraries have buffered
    report.write(json.dumps({**event, "printed": os.fstat(2).st_size}) + "\n")
    report.flush()


def _in_one_line(error: BaseException) -> str:
    lines = [line.strip() for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
    return lines[0]


def _messages(error: BaseException) -> str:
    """The error and its causes, without the lines of source code in between."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(texts) < 10:
        texts.append("".join(traceback.format_exception_only(type(cause), cause)))
        cause = cause.__cause__ or cause.__context__
    return "".join(texts)


if __name__ == "__main__":
    sys.path[:1] = []  # this folder: its modules must not take the place of others with their names
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    with contextlib.suppress(BrokenPipeError):  # the doctor was interrupted
        main(sys.argv[1], sys.argv[2:])
    os._exit(0)  # what Paddle does at its end is no step
