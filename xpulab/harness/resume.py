"""A run that was interrupted goes on with the notebooks that had not ended; each of these runs again from its beginning.

What a notebook recorded before is not lost: a cell that was red, or raised, before the interruption stays as it was, whatever
it shows when it runs again. Only the very cell that Ctrl-C interrupted is not kept, since what it recorded may come from that.
verdict() in the new kernel is given the red records too.

At level standard with the pretrained model, on two busy cores, going on after the last finished section instead would save 87 s
on average in the longest chapter (371 s) and 10 s in others: what the remaining sections need runs again there too.

In DIR/notebooks, NAME.ipynb is what has executed, NAME.red.ipynb holds the red cells from before the interruptions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from xpulab.harness.execute import INTERRUPTED, Run
from xpulab.harness.lost import has_raised, left_out_of, unmark
from xpulab.harness.plan import Plan
from xpulab.harness.sections import cells_by_number
from xpulab.harness.written import replace_notebook, replace_text
from xpulab.records import earlier
from xpulab.records.earlier import Earlier
from xpulab.records.record import METADATA_KEY, RED, Record, record_in

_TIMES = "times_resumed"


@dataclass(frozen=True)
class Begun:
    """A notebook of a run that is resumed, or of a new one.

    has_ended: it is not run again. records: the file with the red records from before, None when there are none.
    """

    plan: Plan
    has_ended: bool = False
    records: Path | None = None


def begin(plan: Plan, folder: Path) -> Begun:
    """What became of a notebook in the folder of an interrupted run. Its red cells are kept in NAME.red.ipynb."""
    executed, red = executed_of(plan, folder), _red(plan, folder)
    ran, before = _read(executed), _read(red)
    if ran is not None and _has_ended(ran):
        if before is not None:  # killed between the end of the notebook and `finish`
            finish(plan, folder)
        return Begun(plan, has_ended=True)
    if ran is None:
        executed.unlink(missing_ok=True)
    else:
        if _run_of(ran):  # by Ctrl-C: what the interrupted cell recorded may come from that
            _clear_the_last_that_ran(ran)
        own, of = (before.metadata[METADATA_KEY], _TIMES) if before is not None else (_run_of(ran), "resumed")
        times = own.get(of, 0)
        before = _with_red_cells(ran, before)
        for cell in cells_by_number(before).values():
            if not _is_red(cell):
                _clear(cell)
        before.metadata[METADATA_KEY] = {**before.metadata.get(METADATA_KEY, {}), _TIMES: times + 1}
        replace_notebook(red, before)
        executed.unlink()
    if before is None:
        return Begun(plan)
    records = executed.with_suffix(".records.json")
    replace_text(records, Earlier(tuple(_records_of(before)), left_out_of(plan, before)).to_json())
    return Begun(plan, records=records)


def finish(plan: Plan, folder: Path) -> Path:
    """Put the red cells from before the interruption into the notebook that has now run; returns its file."""
    executed, red = executed_of(plan, folder), _red(plan, folder)
    before, ran = _read(red), _read(executed)
    if before is not None and ran is not None and _run_of(ran):
        joined = _with_red_cells(ran, before)
        run = replace(Run(**_run_of(ran)), resumed=before.metadata[METADATA_KEY][_TIMES])
        joined.metadata[METADATA_KEY] = {**joined.metadata[METADATA_KEY], "run": asdict(run)}
        replace_notebook(executed, joined)
    for path in (red, executed.with_suffix(".records.json")):
        path.unlink(missing_ok=True)
    return executed


def variables(begun: Begun) -> Mapping[str, str]:
    """The variables that its kernel gets in addition."""
    return {} if begun.records is None else {earlier.VARIABLE: str(begun.records)}


def has_ended(plan: Plan, folder: Path) -> bool:
    """Whether the notebook ran to its end, or was stopped for a reason that is a result: all but an interruption of the run."""
    notebook = _read(executed_of(plan, folder))
    return notebook is not None and _has_ended(notebook) and not _red(plan, folder).exists()


def records_of(begun: Begun) -> list[Record]:
    """The red records from before."""
    if begun.records is None:
        return []
    return list(Earlier.from_json(begun.records.read_text(encoding="utf-8")).records)


def executed_of(plan: Plan, folder: Path) -> Path:
    """The executed notebook."""
    return folder / "notebooks" / f"{plan.name}.ipynb"


def _red(plan: Plan, folder: Path) -> Path:
    return folder / "notebooks" / f"{plan.name}.red.ipynb"


def _run_of(notebook: NotebookNode) -> dict[str, Any]:
    """How it was run; empty for one that was killed."""
    return notebook.metadata.get(METADATA_KEY, {}).get("run", {})


def _has_ended(notebook: NotebookNode) -> bool:
    run = _run_of(notebook)
    return bool(run) and not (run["stopped"] or "").startswith(INTERRUPTED)


def _read(path: Path) -> NotebookNode | None:
    """The notebook; None when there is none, or one that a power failure has damaged."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError, AttributeError, KeyError):
        return None


def _with_red_cells(ran: NotebookNode, before: NotebookNode | None) -> NotebookNode:
    """What has run, but each cell that was red before as it was then; verdict(), the last one, always as it is now."""
    joined = copy.deepcopy(ran)
    red = {number: cell for number, cell in cells_by_number(before).items() if _is_red(cell)} if before is not None else {}
    numbers = cells_by_number(joined)
    for number in set(red) & set(numbers) - {max(numbers, default=0)}:
        numbers[number].update(copy.deepcopy(red[number]))
    return joined


def _is_red(cell: NotebookNode) -> bool:
    return has_raised(cell) or any(record.outcome in RED for record in _records_in(cell))


def _records_of(notebook: NotebookNode) -> list[Record]:
    return [record for cell in notebook.cells if cell.cell_type == "code" for record in _records_in(cell)]


def _records_in(cell: NotebookNode) -> list[Record]:
    return list(filter(None, (record_in(output.get("metadata", {})) for output in cell.outputs)))


def _clear(cell: NotebookNode) -> None:
    cell.outputs, cell.execution_count = [], None
    cell.metadata.pop("papermill", None)
    unmark(cell)


def _clear_the_last_that_ran(notebook: NotebookNode) -> None:
    ran = [cell for cell in cells_by_number(notebook).values() if cell.metadata.get("papermill", {}).get("start_time")]
    if ran:
        _clear(max(ran, key=lambda cell: cell.metadata.papermill.start_time))
