"""The proof that the suite catches faults: each is let loose in a notebook of its own, which must turn red for that reason.

Of the notebook runs what the checks that must see the fault depend on, and no more; a notebook is ended as soon as they all
have. The control of this proof runs the same sections without a fault: there each of these checks must be well.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from xpulab import files
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.faults import CATALOGUE
from xpulab.faults.fault import Fault
from xpulab.faults.sections import Slice, sliced
from xpulab.harness.execute import Execution, Target
from xpulab.harness.judge import judge
from xpulab.harness.plan import Plan, read_notebook, read_plan
from xpulab.records.record import Record, record_in, worse

CARDS = 2
"""What each notebook gets, unless it needs more."""

_SEEN = frozenset({"failed", "broken"})
_WELL = frozenset({"passed", "known", "fixed"})

_NO_NAME = re.compile(r"name '(\w+)' is not defined")

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
    """Try the faults, `jobs` at a time, those that take longest first; yields each trial as it ends.

    environment: what the kernels find, as harness.run.kernel_environment gives it.
    """
    return _at_a_time(_try, faults, jobs, environment)


def try_fault(fault: Fault, environment: Mapping[str, str]) -> Trial:
    """Run the fault's sections of its notebook with the fault in its process."""
    return _try(fault, environment, [])


@dataclass(frozen=True)
class Control:
    """What came of the sections that some faults are tried in, without any fault.

    notebook, device: where they ran. faults: those that are tried in them. checks: those that must see these faults.
    cells: how many code cells ran, out of how many. wrong: why the sections prove nothing; None when every check was well.
    seconds: as in Trial.
    """

    notebook: str
    device: str
    faults: tuple[str, ...]
    checks: tuple[str, ...]
    cells: tuple[int, int]
    wrong: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The control as a JSON object."""
        return asdict(self)


def controls(faults: Iterable[Fault], jobs: int, environment: Mapping[str, str]) -> Iterator[Control]:
    """Run the sections of these faults without the faults, the same ones once; as `trials` otherwise.

    A fault that ends its notebook is tried in the whole of it, which `xpulab run` runs: it has no control here.
    """
    alike: dict[tuple, list[Fault]] = {}
    for fault in faults:
        if not fault.says:
            alike.setdefault((fault.notebook, fault.device, _slice(fault).sources), []).append(fault)
    together = [_nothing(each) for each in alike.values()]
    names = {nothing.name: tuple(fault.name for fault in each) for nothing, each in zip(together, alike.values(), strict=True)}
    for control in _at_a_time(_try_nothing, together, jobs, environment):
        yield replace(control, faults=names[control.faults[0]])


def _nothing(alike: Sequence[Fault]) -> Fault:
    """No fault at all, in the sections that these faults share."""
    checks = tuple(dict.fromkeys(check for fault in alike for check in fault.seen_by))
    return Fault(alike[0].name, "nothing is broken", alike[0].notebook, checks, device=alike[0].device)


def _at_a_time(run: Callable, faults: Iterable[Fault], jobs: int, environment: Mapping[str, str]) -> Iterator[Any]:
    longest_first = sorted(faults, key=_expected_seconds, reverse=True)
    running: list[Execution] = []
    with ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(run, fault, environment, running) for fault in longest_first]
        try:
            for done in as_completed(started):
                yield done.result()
        finally:
            for future in started:
                future.cancel()
            for execution in list(running):
                execution.stop()


def _try(fault: Fault, environment: Mapping[str, str], running: list[Execution]) -> Trial:
    def enough(seen: Mapping[str, Record]) -> bool:
        return not fault.says and set(_red(seen)) >= set(fault.seen_by)

    ran = _run(fault, environment, running, enough)
    red = _red(ran.seen)
    return Trial(fault, red, ran.proves_nothing or _why_survived(fault, red, " ".join(ran.reasons)), ran.seconds)


def _try_nothing(nothing: Fault, environment: Mapping[str, str], running: list[Execution]) -> Control:
    ran = _run(nothing, environment, running, lambda seen: seen.keys() >= set(nothing.seen_by))
    ill = [f"{name} is {_outcome(ran.seen.get(name))}" for name in nothing.seen_by if _outcome(ran.seen.get(name)) not in _WELL]
    wrong = ran.proves_nothing or ("; ".join([*ill, *ran.reasons]) if ill else None)
    sources = _slice(nothing).sources
    cells = (sum(map(bool, sources)), len(sources))
    return Control(nothing.notebook, nothing.device, (nothing.name,), nothing.seen_by, cells, wrong, ran.seconds)


@dataclass(frozen=True)
class _Ran:
    """What was seen: the checks' records by name, in the order in which they came, and the judge's reasons.

    proves_nothing: why whatever was seen is no proof, else None.
    """

    seen: Mapping[str, Record]
    reasons: tuple[str, ...]
    proves_nothing: str | None
    seconds: float


def _run(
    fault: Fault, environment: Mapping[str, str], running: list[Execution], enough: Callable[[Mapping[str, Record]], bool]
) -> _Ran:
    """Run the fault's sections with the fault, until `enough` was seen."""
    seen: dict[str, Record] = {}
    texts: list[str] = []

    def on_end_of(cell: NotebookNode) -> bool:
        for output in cell.get("outputs", []):
            texts.append(str(output))
            if record := record_in(output.get("metadata", {})):
                seen[record.name] = worse(seen[record.name], record) if record.name in seen else record
        return enough(seen)

    with tempfile.TemporaryDirectory(prefix="xpulab-fault-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        plan = _sections(fault, folder)
        target = Target(fault.device, "quick", max(CARDS, plan.cards))
        variables = {**environment, **_injected(fault, folder), "OMP_NUM_THREADS": "1"}
        execution = Execution(target, folder, lambda *cell: None, variables, on_end_of)
        running.append(execution)
        started = time.monotonic()
        executed = [path for _, path in execution.run([plan], 1)]
        seconds = round(time.monotonic() - started, 1)
        reasons = judge(plan, executed[0]).reasons if executed else ("it was interrupted",)
        failure = folder / _FAILURE
        why = f"it could not be let loose: {failure.read_text(encoding='utf-8')}" if failure.exists() else None
    missed = sorted(_slice(fault).cut & set(_NO_NAME.findall("\n".join([*texts, *reasons]))))
    why = why or (f"its sections lack {', '.join(missed)}, so that they break by themselves" if missed else None)
    return _Ran(seen, tuple(reasons), why, seconds)


def _path(fault: Fault) -> Path:
    return files.NOTEBOOKS / f"{fault.notebook}.ipynb"


def _slice(fault: Fault) -> Slice:
    """What the fault is tried in: all of its notebook when it ends that."""
    sources = _sources(_path(fault))
    return Slice(sources, frozenset()) if fault.says else sliced(sources, frozenset(fault.seen_by))


@lru_cache(maxsize=16)
def _sources(path: Path) -> tuple[str, ...]:
    """Those of a notebook's code cells; it is read once for all its faults."""
    return tuple(cell.source for cell in read_notebook(path).cells if cell.cell_type == "code")


def _sections(fault: Fault, folder: Path) -> Plan:
    """The plan of a copy of the notebook in which the cells hold only what is needed, and nothing where nothing is."""
    if fault.says:
        return read_plan(_path(fault), "quick")
    notebook = read_notebook(_path(fault))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, source in zip(code, _slice(fault).sources, strict=True):
        cell.source, cell.outputs, cell.execution_count = source, [], None
    copy = folder / "sections" / _path(fault).name
    copy.parent.mkdir()
    nbformat.write(notebook, copy)
    return read_plan(copy, "quick")


def _expected_seconds(fault: Fault) -> float:
    """A guess: the notebook's budget by the share of its cells that are needed."""
    sources = _slice(fault).sources
    return read_plan(_path(fault), "quick").budget_seconds * sum(map(bool, sources)) / len(sources)


def _red(seen: Mapping[str, Record]) -> tuple[str, ...]:
    return tuple(name for name, record in seen.items() if record.outcome in _SEEN)


def _outcome(record: Record | None) -> str:
    return record.outcome if record else "missing"


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
