"""Tries the installation in a process of its own: the imports of Paddle and PaddleNLP, and a computation on every card.

An import can raise, end the process (a truncated library, a processor without an instruction), hang (a card, a driver, a
network file system) or print. Each step has the time limit for itself; after a card that crashes or hangs, a new process
goes on with the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from xpulab.devices import SIMULATED
from xpulab.doctor import probe_process
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.probe_process import IMPORT_PADDLE, IMPORT_PADDLENLP
from xpulab.stack_end import SHOW_STACK, stack_end

TIMEOUT = 120.0
"""Seconds for each step. An import that starts from a network file system takes minutes the first time."""
OUTPUT_LIMIT = 1 << 20
"""Bytes that the process may print."""
SIMULATED_CARDS = 2

_STACK_SECONDS = 1.0
_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.5


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
    script = str(Path(probe_process.__file__).resolve())
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", script, device, *skipped],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=printed,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            name, begun, ended = IMPORT_PADDLE, 0, False
            for event in _events(process, printed, timeout):
                if event is None:
                    yield _unfinished(name, process, printed, begun, timeout), None
                    return
                if event["event"] == "begin":
                    name, begun, ended = event["name"], event["printed"], False
                else:
                    ended = True
                    text = _text(printed, begun, event["printed"])
                    step = Step(name, event["outcome"], event["detail"], text, event.get("message", ""))
                    if name not in done:
                        yield step, event.get("found")
            if process.wait(timeout) != 0 or not ended:
                yield _unfinished(name, process, printed, begun, timeout), None
        finally:
            _kill(process)


def _events(process: subprocess.Popen, printed: IO[bytes], timeout: float) -> Iterator[dict[str, Any] | None]:
    """What the process reports, until it ends; None when it reports nothing for timeout seconds, or prints without end."""
    received = bytearray()
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    return
                received += chunk
                *lines, received = received.split(b"\n")
                for line in lines:
                    yield json.loads(line)
                    deadline = time.monotonic() + timeout
            elif time.monotonic() >= deadline or os.fstat(printed.fileno()).st_size > OUTPUT_LIMIT:
                yield None
                return


def _unfinished(name: str, process: subprocess.Popen, printed: IO[bytes], begun: int, timeout: float) -> Step:
    """The step in which the process ended or is stuck; a stuck one first writes where it is."""
    if process.poll() is None:
        if os.fstat(printed.fileno()).st_size > OUTPUT_LIMIT:
            return Step(name, "hung", f"it printed more than {OUTPUT_LIMIT} bytes and was killed{_kill(process)}")
        before = os.fstat(printed.fileno()).st_size
        process.send_signal(SHOW_STACK)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STACK_SECONDS)
        killed = _kill(process)
        place = _place(_text(printed, before, None))
        return Step(name, "hung", f"it did not end within {timeout:g} s{killed}{place}", _text(printed, begun, before))
    text = _text(printed, begun, None)
    return Step(name, "crashed", f"{_format_status(process.returncode)}{_place(text)}", text)


def _kill(process: subprocess.Popen) -> str:
    """Kills the process with its children and reaps it; returns an addition to the detail when that is not possible."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        # A process in uninterruptible sleep ignores SIGKILL until the driver call returns.
        return " and cannot be killed: it waits inside the driver"
    process.stdout.close()
    return ""


def _format_status(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"the process was ended by signal {-status}"
    return f"the process was ended by {number.name} ({signal.strsignal(number)})"


def _text(printed: IO[bytes], start: int, end: int | None) -> str:
    printed.seek(start)
    content = printed.read(OUTPUT_LIMIT if end is None else min(end - start, OUTPUT_LIMIT))
    return content.decode("utf-8", errors="replace").strip()


def _place(stack: str) -> str:
    """Where a stack ends, as an addition to the detail."""
    place = stack_end(stack)
    return f", in {place}" if place else ""
