"""Known causes of what went wrong: what cells raised, what ranks and checks reported, and the kernel's log.

Each text is matched with data/remedies.yaml. What several ranks went through is in the error of the cell that started them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from xpulab.doctor.remedies import Remedy, by_id, match, remedy_on
from xpulab.harness.sections import code_cells
from xpulab.messages import N_
from xpulab.records.record import METADATA_KEY, RED, Record

_LOG_CHARACTERS = 1 << 16
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MESSAGE = re.compile(r"(?m)^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failed)\b.*$")


@dataclass(frozen=True)
class Explanation:
    """A known cause of something that went wrong in a notebook.

    id: of the row in data/remedies.yaml. where: the first place where it was seen: "cell 7", "check sft.loss", "kernel log".
    cause: why it happens. remedy: a command or a sentence.
    """

    id: str
    where: str
    cause: str
    remedy: str

    @property
    def no_verdict(self) -> bool:
        """Whether it is around the run, and says nothing of what the notebook judges."""
        return by_id(self.id).no_verdict


def explanation(row: Remedy, where: str, device: str) -> Explanation:
    """The explanation that a row of data/remedies.yaml gives, with the commands for the device."""
    return Explanation(row.id, where, row.cause, remedy_on(row, device))


def explain(notebook: NotebookNode, records: Sequence[Record], log: Path, device: str, ended: str) -> tuple[Explanation, ...]:
    """The known causes, each once, in the order of the notebook.

    notebook: the executed one. records: of the checks. log: what the kernel printed outside of cells; may not exist.
    ended: why the notebook did not run to its end, and what was lacking then; or "".
    """
    found: dict[str, Explanation] = {}
    for where, row in _seen(notebook, records, log, ended):
        found.setdefault(row.id, explanation(row, where, device))
    return tuple(found.values())


def _seen(notebook: NotebookNode, records: Sequence[Record], log: Path, ended: str) -> Iterator[tuple[str, Remedy]]:
    yield from ((N_("the run"), row) for row in match(ended))
    for index, number in code_cells(notebook).items():
        for output in notebook.cells[index].outputs:
            where = N_("cell {number}", number=number)
            if known := output.get("metadata", {}).get(METADATA_KEY, {}).get("known"):
                yield where, by_id(known)
            elif output.output_type == "error":
                yield from ((where, row) for row in match(_error_text(output)))
    for record in records:
        if record.outcome in RED:
            reasons = [record.reason, *(row.reason for row in record.rows if row.outcome in RED)]
            yield from ((N_("check {name}", name=record.name), row) for row in match("\n".join(filter(None, reasons))))
    if log.exists():
        written = log.read_bytes()[-_LOG_CHARACTERS:].decode("utf-8", errors="replace")
        yield from ((N_("kernel log"), row) for row in match(written) if ended or not row.no_verdict)


def _error_text(output: NotebookNode) -> str:
    """The error and the ones that led to it, without the source code between them, where a pattern could match by chance."""
    traceback = _COLOURS.sub("", "\n".join(output.traceback))
    return "\n".join([f"{output.ename}: {_COLOURS.sub('', output.evalue)}", *_MESSAGE.findall(traceback)])
