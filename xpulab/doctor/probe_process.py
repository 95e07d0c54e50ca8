"""The process in which one step of an installation is tried: an import of Paddle or PaddleNLP, or a computation on a card.

    python probe_process.py "import paddle"|"import paddlenlp"|PLACE SECONDS

xpulab.doctor.probe starts it by its path, so that an import that crashes or hangs ends this process only. Standard output
carries one JSON object; whatever a library prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

IMPORT_PADDLE = "import paddle"
IMPORT_PADDLENLP = "import paddlenlp"
PADDLENLP = ("paddlenlp.transformers", "paddlenlp.data", "paddlenlp.trainer", "paddlenlp.peft", "paddlenlp.trl")
"""What the chapters use of PaddleNLP."""

LATE = "Timeout ("
"""How faulthandler begins, in a line of its own, what it writes at the time limit."""

_SIDE = 64


class WrongResult(ArithmeticError):
    """A card computed something else than numpy."""


def main(step: str, seconds: float) -> None:
    """Try the step, and write what came of it; after so many seconds write the stack, and end."""
    faulthandler.enable(sys.stderr)
    faulthandler.dump_traceback_later(seconds, exit=True)
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    started = time.monotonic()
    said: dict[str, Any] = {"outcome": "ok", "message": "", "facts": None}
    try:
        if step == IMPORT_PADDLE:
            said["facts"] = _import_paddle()
        elif step == IMPORT_PADDLENLP:
            _import_paddlenlp()
        else:
            _compute(step)
        said["detail"] = f"{round(time.monotonic() - started, 1)} s"
    except BaseException as error:  # an import may also end the process by SystemExit
        said |= {"outcome": "raised", "detail": _in_one_line(error), "message": _messages(error)}
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # what C libraries have buffered
    with contextlib.suppress(BrokenPipeError):  # the doctor was interrupted
        report.write(json.dumps(said) + "\n")
        report.flush()


def _import_paddle() -> dict[str, Any]:
    """Import Paddle; returns its facts."""
    import paddle  # noqa: F401 - what it raises is reported with all its causes

    from xpulab.doctor.paddle_facts import facts_of_imported

    return asdict(facts_of_imported())


def _import_paddlenlp() -> None:
    for module in PADDLENLP:
        importlib.import_module(module)


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
    main(sys.argv[1], float(sys.argv[2]))
    os._exit(0)  # what Paddle does at its end is no step
