"""Tries the installation: the imports of Paddle and PaddleNLP, and a computation on every card, each in a process of its own.

An import can raise, end the process (a truncated library, a processor without an instruction), hang (a card, a driver, a
network file system) or print. Each step has the time limit for itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xpulab import child
from xpulab.child import OUTPUT_LIMIT, stack_end
from xpulab.devices import SIMULATED
from xpulab.doctor import probe_process
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.probe_process import IMPORT_PADDLE, IMPORT_PADDLENLP
from xpulab.messages import N_
from xpulab.records.usable import whole_cores

TIMEOUT = 120.0
"""Seconds for each step. An import that starts from a network file system takes minutes the first time."""
SIMULATED_CARDS = 2
SUSPECTS = ("CUSTOM_DEVICE_ROOT", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables that put libraries or modules of another place before those of this environment."""
_ENDS_SECONDS = 10.0
"""After its time limit a step ends itself, unless it waits inside a driver: then it is killed so much later."""


@dataclass(frozen=True)
class Step:
    """One thing that was tried.

    name: "import paddle", "import paddlenlp", or the card as paddle.set_device names it, "xpu:0", "cpu"
    outcome: "ok"; "raised" a Python exception; "crashed" the process ended; "hung" it was killed at the time limit
    detail: one sentence: the time it took, the exception in one line, the signal, or the line of Python where it hung
    printed: what was printed meanwhile, on standard output or standard error
    message: what the exception and its causes say; "" when none was raised
    facts: of "import paddle" that worked what Paddle says about itself; else None
    """

    name: str
    outcome: Literal["ok", "raised", "crashed", "hung"]
    detail: str
    printed: str = ""
    message: str = ""
    facts: PaddleFacts | None = None


@dataclass(frozen=True)
class Probe:
    """The imports that were tried, and a computation on each card; where Paddle cannot be imported nothing else was.

    without: the variable of this environment without which Paddle can be imported; None when it is not one of SUSPECTS
    """

    paddle: Step
    cards: tuple[Step, ...] = ()
    paddlenlp: Step | None = None
    without: str | None = None

    @property
    def facts(self) -> PaddleFacts:
        """What Paddle says about itself."""
        return self.paddle.facts or PaddleFacts(error=self.paddle.detail)


def probe(device: str, timeout: float = TIMEOUT) -> Probe:
    """Tries the installation for device ("xpu", "gpu", "cpu" or "sim"); timeout: seconds for each step.

    Cards are tried beside each other, as many as there are cores. Raises InputError when the simulated cards cannot be built.
    Run on the CPU and on simulated cards only.
    """
    environment = dict(os.environ)
    if device == SIMULATED:
        from xpulab import sim

        environment |= sim.environment(SIMULATED_CARDS)
    first = _try(IMPORT_PADDLE, timeout, environment)
    if first.facts is None:
        return Probe(first, without=_to_blame(first, timeout, environment) if device != SIMULATED else None)
    count = {"xpu": first.facts.xpu_cards, "gpu": first.facts.gpu_cards, SIMULATED: SIMULATED_CARDS}.get(device)
    places = ["cpu"] if count is None else [f"{device}:{card}" for card in range(count)]
    with ThreadPoolExecutor(whole_cores()) as pool:
        *cards, paddlenlp = pool.map(lambda name: _try(name, timeout, environment), [*places, IMPORT_PADDLENLP])
    return Probe(first, tuple(cards), paddlenlp)


def _to_blame(failed: Step, timeout: float, environment: Mapping[str, str]) -> str | None:
    """The first of SUSPECTS that is set and without which the import works; not tried where each try would hang."""
    for name in SUSPECTS if failed.outcome != "hung" else ():
        without = {key: value for key, value in environment.items() if key != name}
        if environment.get(name) and _try(IMPORT_PADDLE, timeout, without).outcome == "ok":
            return name
    return None


def probe_import(timeout: float = TIMEOUT) -> Step:
    """Tries only `import paddle`."""
    return _try(IMPORT_PADDLE, timeout, os.environ)


def _try(name: str, timeout: float, environ: Mapping[str, str]) -> Step:
    """Try one step in a process, which answers with one line of JSON, and shows its stack when it does not end."""
    command = [sys.executable, "-W", "ignore", str(Path(probe_process.__file__).resolve()), name, str(timeout)]
    environment = {"GLOG_minloglevel": "1", **environ}  # warnings and errors of Paddle's C++, but not each line of information
    ran = child.run(command, timeout + _ENDS_SECONDS, env=environment)
    printed, place = ran.errors.strip(), stack_end(ran.errors)
    where = f", in {place}" if place else ""
    if ran.is_too_long:
        late = N_("it printed more than {OUTPUT_LIMIT} bytes and was killed{kill}", OUTPUT_LIMIT=OUTPUT_LIMIT, kill=ran.killed)
        return Step(name, "hung", late)
    if ran.status is None or f"\n{probe_process.LATE}" in f"\n{ran.errors}":
        late = N_("it did not end within {timeout} s{killed}", timeout=f"{timeout:g}", killed=ran.killed)
        return Step(name, "hung", f"{late}{where}", printed)
    if ran.status != 0 or not ran.output.endswith("\n"):
        return Step(name, "crashed", f"{_format_status(ran.status)}{where}", printed)
    said = json.loads(ran.output)
    facts = PaddleFacts(**said["facts"]) if said["facts"] else None
    return Step(name, said["outcome"], said["detail"], printed, said["message"], facts)


def _format_status(status: int) -> str:
    if status >= 0:
        return N_("the process ended with status {status}", status=status)
    try:
        number = signal.Signals(-status)
    except ValueError:
        return N_("the process was ended by signal {status}", status=-status)
    meaning = signal.strsignal(number)
    return N_("the process was ended by {name} ({meaning})", name=number.name, meaning=meaning)
