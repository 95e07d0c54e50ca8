"""The proof that the suite catches faults: each is let loose in a notebook of its own, which must turn red for that reason.

A notebook is ended as soon as all the checks that must see its fault have done so.
"""

from __future__ import annotations

import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from xpulab import files
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.faults import CATALOGUE
from xpulab.faults.fault import Fault
from xpulab.harness.execute import Execution, Target
from xpulab.harness.judge import judge
from xpulab.harness.plan import Plan, read_plan
from xpulab.record import record_in

CARDS = 2
"""What each notebook gets, unless it needs more."""

_SEEN = frozenset({"failed", "broken"})

_FAILURE = "failure.txt"

# in a namespace of its own, so that its names stay out of the notebook's; without the try IPython would go on after an error
_STARTUP = """
try:
    exec({body!r}, {{"__name__": "__main__"}})
except BaseException as error:
    with open({failure!r}, "w", encoding="utf-8") as failure:
        failure.write(f"{{type(error).__name__}}: {{error}}")
    del failure
"""


@dataclass(frozen=True)
class Trial:
    """What came of one fault.

    seen_by: the checks that turned red, in the order in which they did. survived: why the fault counts as not caught; None
    when it was. seconds: from the kernel's start until all that had to be red was red, or until the notebook's end.
    """

    fault: Fault
    seen_by: tuple[str, ...]
    survived: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The trial as a JSON object, with the fault's name in place of the fault."""
        fault = self.fault
        known = {"fault": fault.name, "what": fault.what, "notebook": fault.notebook, "device": fault.device}
        expected = {"expected": list(fault.seen_by), "says": fault.says}
        return {**known, **expected, "seen_by": list(self.seen_by), "survived": self.survived, "seconds": self.seconds}


def faults_named(names: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of these names, or all when there are none. Raises InputError for a name that no fault has."""
    known = {fault.name: fault for fault in CATALOGUE}
    for name in names:
        if name not in known:
            raise InputError(f"no fault {name!r}; `xpulab selftest --list` shows them")
    return tuple(known[name] for name in names) if names else CATALOGUE


def trials(faults: Iterable[Fault], jobs: int, environment: Mapping[str, str]) -> Iterator[Trial]:
    """Try the faults, `jobs` at a time, those of the longest notebooks first; yields each trial as it ends.

    environment: what the kernels find, as harness.run.surroundings gives it.
    """
    plans = {fault.name: _plan(fault) for fault in faults}
    longest_first = sorted(faults, key=lambda fault: plans[fault.name].budget_seconds, reverse=True)
    running: list[Execution] = []
    with ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(_try, fault, plans[fault.name], environment, running) for fault in longest_first]
        try:
            for done in as_completed(started):
                yield done.result()
        finally:
            for future in started:
                future.cancel()
            for execution in list(running):
                execution.stop()


def try_fault(fault: Fault, environment: Mapping[str, str]) -> Trial:
    """Run the fault's notebook with the fault in its process."""
    return _try(fault, _plan(fault), environment, [])


def _plan(fault: Fault) -> Plan:
    return read_plan(files.NOTEBOOKS / f"{fault.notebook}.ipynb", "quick")


def _try(fault: Fault, plan: Plan, environment: Mapping[str, str], running: list[Execution]) -> Trial:
    red: dict[str, None] = {}  # in the order in which they were seen

    def enough(cell: NotebookNode) -> bool:
        for output in cell.get("outputs", []):
            record = record_in(output.get("metadata", {}))
            if record and record.outcome in _SEEN:
                red.setdefault(record.name)
        return not fault.says and red.keys() >= set(fault.seen_by)

    target = Target(fault.device, "quick", max(CARDS, plan.cards))
    with tempfile.TemporaryDirectory(prefix="xpulab-fault-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        variables = {**environment, **_injected(fault, folder), "OMP_NUM_THREADS": "1"}
        execution = Execution(target, folder, lambda *cell: None, variables, enough)
        running.append(execution)
        started = time.monotonic()
        executed = [path for _, path in execution.run([plan], 1)]
        seconds = round(time.monotonic() - started, 1)
        reasons = judge(plan, executed[0]).reasons if executed else ("it was interrupted",)
        if (failure := folder / _FAILURE).exists():
            return Trial(fault, tuple(red), f"it could not be let loose: {failure.read_text(encoding='utf-8')}", seconds)
    return Trial(fault, tuple(red), _why_survived(fault, red.keys(), " ".join(reasons)), seconds)


def _why_survived(fault: Fault, red: Iterable[str], reason: str) -> str | None:
    if fault.says:
        return None if fault.says in reason.lower() else f"the notebook does not say {fault.says!r} but: {reason or 'nothing'}"
    unseen = sorted(set(fault.seen_by) - set(red))
    return f"not seen by {', '.join(unseen)}; {reason or 'the notebook is green'}" if unseen else None


def _injected(fault: Fault, folder: Path) -> dict[str, str]:
    """The variables that bring the fault into a kernel: IPython runs the files in its startup folder before the first cell."""
    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    body = f"def fault():\n    pass\n{textwrap.indent(textwrap.dedent(fault.breaks), '    ')}\nfault()\n"
    script = _STARTUP.format(body=body, failure=str(folder / _FAILURE))
    (startup / "fault.py").write_text(script, encoding="utf-8")
    cards = {"XPULAB_SIM_FAULTS": fault.sim_faults} if fault.device == SIMULATED else {}
    return {"IPYTHONDIR": str(folder / "ipython"), **cards}
