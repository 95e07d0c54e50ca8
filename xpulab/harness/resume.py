"""A notebook that was interrupted goes on after the last section that finished.

The variables of its kernel are lost. So what is left is run in a new kernel as an excerpt, with all sections that it needs
(xpulab.harness.sections), and the cells of both runs are joined into one executed notebook. Nothing can get lost in it:

- A section counts as finished only when all its cells have ended without an exception. One that is lost, since a cell
  raised (xpulab.harness.lost), is not run again either: what it showed stays.
- Where a cell ran twice, the one with a red check stays; a red check stays also when its section had not finished. Only what
  was recorded in the very cell that Ctrl-C interrupted may come from the interruption, and is not kept.
- verdict() runs in the last kernel, which is given the records of the sections that are not run again.

In DIR, the notebook NAME of an interrupted run is notebooks/NAME.ipynb, or, when it was resumed before,
notebooks/NAME.part.ipynb (what was kept) and rest/NAME.ipynb (what ran after that).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from xpulab.harness.execute import INTERRUPTED, Run
from xpulab.harness.lost import has_raised, left_out_of, lost_in, unmark
from xpulab.harness.plan import Plan
from xpulab.harness.sections import INJECTED, cells_by_number, closure, number_of, undefined_names
from xpulab.harness.written import replace_notebook, replace_text
from xpulab.records import earlier
from xpulab.records.earlier import Earlier
from xpulab.records.record import METADATA_KEY, RED, Record, record_in

REST = "rest"
"""The folder beside notebooks/ in which a resumed run executes."""

_KEPT_SECONDS, _TIMES = "kept_seconds", "times_resumed"


@dataclass(frozen=True)
class Begun:
    """A notebook of a run that is resumed.

    plan: the whole of what the run was asked for. rest: what is still to be run, None when the notebook has ended.
    records: the file with the records that are kept, None when nothing is.
    """

    plan: Plan
    rest: Plan | None
    records: Path | None = None


def begin(plan: Plan, folder: Path) -> Begun:
    """What is left to run of a notebook in the folder of an interrupted run; keeps what has finished in NAME.part.ipynb."""
    executed, part, rest = executed_of(plan, folder), _part(plan, folder), _rest(plan, folder)
    if _has_ended(executed):
        return Begun(plan, None)
    kept = _read(part)
    for path in (executed, rest):
        if (found := _read(path)) is not None:
            kept = _kept(plan, kept, found)
            replace_notebook(part, kept)
        path.unlink(missing_ok=True)
    settled = _settled(plan, kept) if kept is not None else set()
    if kept is None or not settled:
        return Begun(plan, plan, _write_records(plan, folder, kept))
    names = {section.name for section in plan.sections} - settled
    left = replace(plan, sections=closure(plan.chapter.sections, names))
    if undefined_names(left.notebook):  # its needs do not suffice, as `xpulab run --list` would say
        left = plan
    return Begun(plan, left, _write_records(plan, folder, kept))


def finish(begun: Begun, folder: Path) -> Path:
    """Join what was kept with what has now run into notebooks/NAME.ipynb; returns that file, which counts as a whole run."""
    plan = begun.plan
    executed, part, rest = executed_of(plan, folder), _part(plan, folder), _rest(plan, folder)
    ran, kept = nbformat.read(rest, as_version=4), _read(part)
    joined = _joined(plan, kept, ran)
    stored = ran.metadata[METADATA_KEY]["run"]
    own = kept.metadata.get(METADATA_KEY, {}) if kept is not None else {}
    seconds = round(stored["seconds"] + own.get(_KEPT_SECONDS, 0.0), 2)
    run = replace(Run(**stored), seconds=seconds, resumed=own.get(_TIMES, 0))
    joined.metadata[METADATA_KEY] = {**joined.metadata.get(METADATA_KEY, {}), "run": asdict(run)}
    log = rest.with_suffix(".log")
    if log.exists():
        log.replace(executed.with_suffix(".log"))
    replace_notebook(executed, joined)
    for path in (part, rest, rest.with_suffix(".source.ipynb"), _records(plan, folder)):
        path.unlink(missing_ok=True)
    return executed


def variables(begun: Begun) -> Mapping[str, str]:
    """The variables that the kernel of the rest gets in addition."""
    return {} if begun.records is None else {earlier.VARIABLE: str(begun.records)}


def has_ended(plan: Plan, folder: Path) -> bool:
    """Whether the notebook ran to its end, or was stopped for a reason that is a result: all but an interruption of the run."""
    return _has_ended(executed_of(plan, folder))


def has_run_again(plan: Plan, folder: Path) -> bool:
    """Whether a resumed run has executed it, to its end or until it was interrupted, so that `finish` can join it."""
    notebook = _read(_rest(plan, folder))
    return notebook is not None and "run" in notebook.metadata.get(METADATA_KEY, {})


def records_of(begun: Begun) -> list[Record]:
    """The records that are kept."""
    if begun.records is None:
        return []
    return list(Earlier.from_json(begun.records.read_text(encoding="utf-8")).records)


def executed_of(plan: Plan, folder: Path) -> Path:
    return folder / "notebooks" / f"{plan.name}.ipynb"


def _part(plan: Plan, folder: Path) -> Path:
    return folder / "notebooks" / f"{plan.name}.part.ipynb"


def _rest(plan: Plan, folder: Path) -> Path:
    return folder / REST / f"{plan.name}.ipynb"


def _records(plan: Plan, folder: Path) -> Path:
    return folder / REST / f"{plan.name}.records.json"


def _has_ended(executed: Path) -> bool:
    notebook = _read(executed)
    stored = notebook.metadata.get(METADATA_KEY, {}).get("run") if notebook is not None else None
    return stored is not None and not (stored["stopped"] or "").startswith(INTERRUPTED)


def _read(path: Path) -> NotebookNode | None:
    """The notebook; None when there is none, or one that a power failure has damaged: that is run again."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError, AttributeError, KeyError):
        return None


def _kept(plan: Plan, kept: NotebookNode | None, ran: NotebookNode) -> NotebookNode:
    """What was kept before and what has ended since: the cells of settled sections, and every cell with a red check."""
    own = kept.metadata.get(METADATA_KEY, {}) if kept is not None else {}
    seconds = own.get(_KEPT_SECONDS, 0.0) + _seconds(ran)
    if "run" in ran.metadata.get(METADATA_KEY, {}):  # by Ctrl-C: what the interrupted cell recorded may come from that
        _clear_the_last_that_ran(ran)
    times = own.get(_TIMES, ran.metadata.get(METADATA_KEY, {}).get("run", {}).get("resumed", 0)) + 1
    joined = _joined(plan, kept, ran)
    settled = _settled(plan, joined)
    sections = {number: name for name, numbers in _cells_of_sections(plan).items() for number in numbers}
    for number, cell in cells_by_number(joined).items():
        if sections.get(number) not in settled and not _is_red(cell):
            _clear(cell)
    joined.metadata[METADATA_KEY] = {
        **joined.metadata.get(METADATA_KEY, {}),
        _KEPT_SECONDS: round(seconds, 2),
        _TIMES: times,
    }
    return joined


def _joined(plan: Plan, kept: NotebookNode | None, ran: NotebookNode) -> NotebookNode:
    """The planned cells with what they showed: in the order of the source, with the parameters that papermill has injected."""
    joined = copy.deepcopy(plan.notebook)
    injected = [cell for cell in ran.cells if INJECTED in cell.metadata.get("tags", [])]
    before, now = (cells_by_number(notebook) if notebook is not None else {} for notebook in (kept, ran))
    always = _cells_that_always_run(plan)
    cells: list[NotebookNode] = []
    number = 0
    for cell in joined.cells:
        if cell.cell_type != "code":
            cells.append(cell)
            continue
        number += 1
        whole = number_of(cell, number)
        cells.append(_chosen(cell, before.get(whole), now.get(whole), whole in always))
        if "parameters" in cell.metadata.get("tags", []):
            cells += injected
    joined.cells = cells
    return joined


def _chosen(planned: NotebookNode, before: NotebookNode | None, now: NotebookNode | None, always_runs: bool) -> NotebookNode:
    """The cell that counts of the two runs; the planned one without outputs when it has run in neither."""
    ran = [cell for cell in (before, now) if cell is not None and _has_run(cell)]
    red = [cell for cell in ran if _is_red(cell) or (has_raised(cell) and not always_runs)]
    if red:
        return red[0]
    if ran:
        return ran[-1 if always_runs else 0]
    _clear(planned)
    return planned


def _finished(plan: Plan, notebook: NotebookNode) -> set[str]:
    """The names of the sections all of whose cells have ended without an exception."""
    cells = cells_by_number(notebook)
    return {
        name
        for name, numbers in _cells_of_sections(plan).items()
        if all(number in cells and _has_completed(cells[number]) for number in numbers)
    }


def _settled(plan: Plan, notebook: NotebookNode) -> set[str]:
    """The names of the sections that have finished, and of those that are lost while others can run."""
    lost = lost_in(plan, notebook)
    return set() if lost.everything else _finished(plan, notebook) | set(lost.sections)


def _cells_of_sections(plan: Plan) -> dict[str, list[int]]:
    """By the name of each planned section the numbers of its code cells, without the last one, verdict()."""
    numbers = _numbers(plan)
    last = max(numbers.values(), default=0)
    return {
        section.name: [numbers[index] for index in section.cells if index in numbers and numbers[index] != last]
        for section in plan.sections
    }


def _cells_that_always_run(plan: Plan) -> set[int]:
    """The numbers of the code cells before the first section, and of the last one."""
    numbers = _numbers(plan)
    first = min((section.cells.start for section in plan.chapter.sections), default=len(plan.chapter.notebook.cells))
    return {number for index, number in numbers.items() if index < first} | {max(numbers.values(), default=0)}


def _numbers(plan: Plan) -> dict[int, int]:
    """By its index among all cells of the whole notebook the number of each code cell among the code cells, from 1."""
    code = [index for index, cell in enumerate(plan.chapter.notebook.cells) if cell.cell_type == "code"]
    return {index: number for number, index in enumerate(code, start=1)}


def _has_run(cell: NotebookNode) -> bool:
    return cell.metadata.get("papermill", {}).get("status") in ("completed", "failed")


def _has_completed(cell: NotebookNode) -> bool:
    """Whether it ended without an exception; papermill marks as completed also what it did not reach."""
    completed = cell.metadata.get("papermill", {}).get("status") == "completed"
    return completed and (cell.execution_count is not None or not cell.source.strip())


def _is_red(cell: NotebookNode) -> bool:
    return any(record.outcome in RED for record in _records_in(cell))


def _records_in(cell: NotebookNode) -> Iterator[Record]:
    return filter(None, (record_in(output.get("metadata", {})) for output in cell.outputs))


def _clear(cell: NotebookNode) -> None:
    cell.outputs, cell.execution_count = [], None
    cell.metadata.pop("papermill", None)
    unmark(cell)


def _clear_the_last_that_ran(notebook: NotebookNode) -> None:
    ran = [cell for cell in cells_by_number(notebook).values() if _has_run(cell) and cell.metadata.papermill.get("start_time")]
    if ran:
        _clear(max(ran, key=lambda cell: cell.metadata.papermill.start_time))


def _seconds(notebook: NotebookNode) -> float:
    """How long its cells have run."""
    return sum(cell.metadata.get("papermill", {}).get("duration") or 0.0 for cell in notebook.cells)


def _write_records(plan: Plan, folder: Path, kept: NotebookNode | None) -> Path | None:
    if kept is None:
        return None
    always = _cells_that_always_run(plan)
    cells = [cell for number, cell in cells_by_number(kept).items() if number not in always]
    path = _records(plan, folder)
    records = tuple(record for cell in cells for record in _records_in(cell))
    replace_text(path, Earlier(records, left_out_of(plan, kept)).to_json())
    return path
