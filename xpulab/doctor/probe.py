"""Tries the installation in a process of its own: the imports of Paddle and PaddleNLP, and a computation on every card.

An import can raise, end the process (a truncated library, a processor without an instruction), hang (a card, a driver, a
network file system) or print. Each step has the time limit for itself; after a card that crashes or hangs, a new process
goes on with the next one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from xpulab.child import OUTPUT_LIMIT, Child, stack_end
from xpulab.devices import SIMULATED
from xpulab.doctor import probe_process
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.probe_process import IMPORT_PADDLE, IMPORT_PADDLENLP
from xpulab.messages import N_

TIMEOUT = 120.0
"""Seconds for each step. An import that starts from a network file system takes minutes the first time."""
SIMULATED_CARDS = 2


@dataclass(frozen=True)
class Step:
    """One thing that was tried.

    name: "import paddle", "import paddlenlp", or the card as paddle.set_device names it, "xpu:0", "cpu"
    outcome: "ok"; "raised" a Python exception; "crashed" the process ended; "hung" it was killed at the time limit
    detail: one sentence: the time it took, the exception in one line, the signal, or the line of Python where it hung
    printed: what was printed meanwhile, on standard output or standard error
    message: what the exception and its causes say; "" when none was raised
    """

    name: str
    outcome: Literal["ok", "raised", "crashed", "hung"]
    detail: str
    printed: str = ""
    message: str = ""


@dataclass(frozen=True)
class Probe:
    """All steps that were tried, and what Paddle says about itself: facts.error when it cannot be imported."""

    steps: tuple[Step, ...]
    facts: PaddleFacts

    @property
    def cards(self) -> tuple[Step, ...]:
        """The steps that are computations on a card."""
        return tuple(step for step in self.steps if step.name not in (IMPORT_PADDLE, IMPORT_PADDLENLP))

    def step(self, name: str) -> Step | None:
        """The step of this name; None when it was not tried."""
        return next((step for step in self.steps if step.name == name), None)


def probe(device: str, timeout: float = TIMEOUT, environ: Mapping[str, str] = os.environ) -> Probe:
    """Tries the installation for device ("xpu", "gpu", "cpu" or "sim"); timeout: seconds for each step.

    Raises InputError when the simulated cards cannot be built. Run on the CPU and on simulated cards only.
    """
    environment = {"GLOG_minloglevel": "1", **environ}  # warnings and errors of Paddle's C++, but not each line of information
    if device == SIMULATED:
        from xpulab import sim

        environment |= sim.environment(SIMULATED_CARDS)
    steps: dict[str, Step] = {}
    facts = PaddleFacts()
    complete = False
    while not complete:
        complete = True
        for step, found in _run(device, tuple(steps), timeout, environment):
            if step.name in steps:  # the import that worked before fails now
                complete = True
                break
            steps[step.name] = step
            complete = step.outcome not in ("crashed", "hung") or step.name == IMPORT_PADDLE
            if step.name == IMPORT_PADDLE:
                facts = _facts(found) if found else PaddleFacts(error=step.detail)
    return Probe(tuple(steps.values()), facts)


def probe_import(timeout: float = TIMEOUT, environ: Mapping[str, str] = os.environ) -> Step:
    """Tries only `import paddle`."""
    step, _ = next(_run("cpu", ("cpu", IMPORT_PADDLENLP), timeout, {"GLOG_minloglevel": "1", **environ}))
    return step


def _facts(found: Mapping[str, Any]) -> PaddleFacts:
    """The facts that the process sent as JSON, which has no tuples."""
    return PaddleFacts(**{**found, "loaded_twice": tuple(found["loaded_twice"])})


def _run(
    device: str, done: tuple[str, ...], timeout: float, environment: Mapping[str, str]
) -> Iterator[tuple[Step, dict[str, Any] | None]]:
    """Starts a process for the steps that are left; yields each as it ends. The last one may be a crash or a hang."""
    skipped = [name for name in done if name != IMPORT_PADDLE]
    command = [sys.executable, "-W", "ignore", str(Path(probe_process.__file__).resolve()), device, *skipped]
    with (
        tempfile.TemporaryFile() as printed,
        Child(command, stdout=subprocess.PIPE, stderr=printed, env=dict(environment)) as child,
    ):
        name, begun, ended = IMPORT_PADDLE, 0, False
        deadline = time.monotonic() + timeout
        for line in child.lines():
            if line is None:
                if time.monotonic() < deadline and _size(printed) <= OUTPUT_LIMIT:
                    continue
                yield _unfinished(name, child, printed, begun, timeout), None
                return
            if not line.endswith(b"\n"):
                break  # it was ended while it wrote
            event = json.loads(line)
            if event["event"] == "begin":
                name, begun, ended = event["name"], event["printed"], False
            else:
                ended = True
                text = _text(printed, begun, event["printed"])
                step = Step(name, event["outcome"], event["detail"], text, event.get("message", ""))
                if name not in done:
                    yield step, event.get("found")
            deadline = time.monotonic() + timeout
        if child.wait(timeout) != 0 or not ended:
            yield _unfinished(name, child, printed, begun, timeout), None


def _unfinished(name: str, child: Child, printed: IO[bytes], begun: int, timeout: float) -> Step:
    """The step in which the process ended or is stuck; a stuck one first writes where it is."""
    status = child.wait()
    if status is not None:
        text = _text(printed, begun, None)
        return Step(name, "crashed", f"{_format_status(status)}{_in(stack_end(text))}", text)
    before = _size(printed)
    if before > OUTPUT_LIMIT:
        return Step(name, "hung", N_(f"it printed more than {OUTPUT_LIMIT} bytes and was killed{child.kill()}"))
    place = child.place(printed.fileno())
    killed = child.kill()
    late = N_(f"it did not end within {timeout:g} s{killed}")
    detail = f"{late}{_in(place)}"
    return Step(name, "hung", detail, _text(printed, begun, before))


def _format_status(status: int) -> str:
    if status >= 0:
        return N_(f"the process ended with status {status}")
    try:
        number = signal.Signals(-status)
    except ValueError:
        return N_(f"the process was ended by signal {-status}")
    meaning = signal.strsignal(number)
    return N_(f"the process was ended by {number.name} ({meaning})")


def _text(printed: IO[bytes], start: int, end: int | None) -> str:
    content = os.pread(printed.fileno(), OUTPUT_LIMIT if end is None else min(end - start, OUTPUT_LIMIT), start)
    return content.decode("utf-8", errors="replace").strip()


def _size(printed: IO[bytes]) -> int:
    return os.fstat(printed.fileno()).st_size


def _in(place: str) -> str:
    """Where a stack ends, as an addition to the detail."""
    return f", in {place}" if place else ""
