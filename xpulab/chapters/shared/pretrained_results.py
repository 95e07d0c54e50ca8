"""What chapters 02 to 04 reach with a pretrained model: rows that the suite measured, stored in data/pretrained_results.json.

A chapter shows the row of its own run beside the stored one. The row is also in the metadata of the cell's output, from where
tools/pretrained_results.py takes it when the chapter ran with a pretrained model.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from xpulab import files
from xpulab.checks.ledger import ledger
from xpulab.records.record import METADATA_KEY

KEY = "pretrained_result"
"""Where the row is in an output's metadata, below METADATA_KEY."""


@dataclass(frozen=True)
class Result:
    """What one training reached.

    chapter: the notebook's name without its number, "lora". model: its name for the reader.
    parameters, trainable: how many the model has with what was added to it, and how many of them are trained; 1 or more.
    steps: optimizer steps. loss_before, loss_after: of the chapter's own loss, before the first and after the last step.
    counted: what `right_before` and `right_after` of `questions` count, in words.
    seconds: of the training alone. machine: the device, its processor or cards and cores. date: year-month-day, UTC.
    """

    chapter: str
    model: str
    parameters: int
    trainable: int
    steps: int
    loss_before: float
    loss_after: float
    counted: str
    right_before: int
    right_after: int
    questions: int
    seconds: float
    machine: str
    date: str


def measured(*, model: str, **values: Any) -> Result:
    """The result of this run: `values` are the fields of Result except machine and date, which are those of this kernel.

    model: a path is shortened to the name of its folder.
    """
    today = datetime.now(timezone.utc).date().isoformat()
    return Result(model=_short(model), machine=_machine(), date=today, **values)


def stored(chapter: str) -> Result | None:
    """The stored result of a chapter with a pretrained model; None before tools/pretrained_results.py has written one."""
    return next((result for result in load() if result.chapter == chapter), None)


def load() -> tuple[Result, ...]:
    """All stored results, one for each chapter. Raises InputError when the file does not fit its schema."""
    rows = files.load_json(files.data("pretrained_results.json"), files.data("schema", "pretrained_results.schema.json"))
    return tuple(Result(**row) for row in rows)


def show(result: Result) -> None:
    """Display this run, beside the stored run with a pretrained model; the output's metadata holds the row of this run."""
    from IPython.display import display

    rows = [_format(column) for column in (result, stored(result.chapter)) if column]
    metadata = {METADATA_KEY: {KEY: asdict(result)}}
    display({"text/plain": _as_text(rows), "text/html": _as_html(rows)}, raw=True, metadata=metadata)


def _format(result: Result) -> dict[str, str]:
    """The fields as texts, by the name of the row."""
    share = result.trainable / result.parameters
    return {
        "model": result.model,
        "parameters": f"{result.parameters:,}",
        "trainable parameters": f"{result.trainable:,} ({share:.2%})",
        "optimizer steps": f"{result.steps}",
        "loss, before and after": f"{result.loss_before:.3f} → {result.loss_after:.3f}",
        result.counted: f"{result.right_before} → {result.right_after} of {result.questions}",
        "seconds of training": f"{result.seconds:.1f}",
        "machine": result.machine,
        "date": result.date,
    }


HEADS = ("this run", "stored run, pretrained")


def _as_text(columns: Sequence[dict[str, str]]) -> str:
    names = list(columns[0])
    head = ["", *HEADS[: len(columns)]]
    cells = [head, *([name, *(list(column.values())[index] for column in columns)] for index, name in enumerate(names))]
    widths = [max(len(row[index]) for row in cells) for index in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)


def _as_html(columns: Sequence[dict[str, str]]) -> str:
    head = "".join(f"<th>{html.escape(each)}</th>" for each in ("", *HEADS[: len(columns)]))
    values = [list(column.values()) for column in columns]
    lines = [
        f"<tr><td>{html.escape(name)}</td>" + "".join(f"<td>{html.escape(column[index])}</td>" for column in values) + "</tr>"
        for index, name in enumerate(columns[0])
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _machine() -> str:
    context = ledger.run_context
    if context is None:
        return "unknown"
    what = context.machine.get("card", context.machine["processor"])
    return f"{context.device}, {what}, {context.machine['cores']} cores"


def _short(model: str) -> str:
    """A release's own title for a release and for its folder in the cache, else the last part of a path."""
    from xpulab.pretrained.releases import RELEASES

    name = model.rstrip("/").rpartition("/")[2]
    return next((release.title for key, release in RELEASES.items() if name.startswith(key)), name)
