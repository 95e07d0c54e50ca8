"""A notebook that was run contradicts itself nowhere; an edited record does."""

from __future__ import annotations

import nbformat
import pytest
from nbformat import v4

from xpulab import files
from xpulab.fleet.contradictions import contradictions
from xpulab.records.record import Record, Row


def notebook(record, shown=None):
    """A notebook whose only output holds this record, and shows this line."""
    line = f"{record.outcome:<8}{record.name}  {record.means}" if shown is None else shown
    output = v4.new_output("display_data", {"text/plain": line}, metadata=record.to_metadata())
    return v4.new_notebook(cells=[v4.new_code_cell("", outputs=[nbformat.from_dict(output)])])


GOOD = {"name": "demo.value", "outcome": "passed", "means": "m", "measured": 1.0, "expected": "< 2", "control": "rejected"}
ROW = {"case": "float16", "outcome": "passed", "measured": 3.0, "expected": "> 2", "control": "rejected"}


@pytest.mark.parametrize("path", sorted(files.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_committed_notebook_has_none(path):
    assert list(contradictions(nbformat.read(path, as_version=4))) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"measured": 2.5}, "it is passed, measured 2.5, expected < 2"),
        ({"measured": float("nan")}, "it is passed, measured nan, expected < 2"),
        ({"control": "accepted"}, "it is passed, its control is accepted"),
        ({"rows": (Row(**{**ROW, "outcome": "failed"}),)}, "it is passed with red rows: float16"),
        ({"rows": (Row(**{**ROW, "outcome": "known"}),)}, "it is passed, its rows are not"),
        ({"rows": (Row(**{**ROW, "measured": 1.0}),)}, "row float16: it is passed, measured 1.0, expected > 2"),
        ({"rows": (Row(**{**ROW, "control": "raised"}),)}, "row float16: it is passed, its control is raised"),
    ],
)
def test_a_record_that_cannot_have_passed_is_named(changed, said):
    assert f"demo.value: {said}" in list(contradictions(notebook(Record(**{**GOOD, **changed}))))


@pytest.mark.parametrize(
    "changed", [{}, {"rows": (Row(**ROW),)}, {"measured": "equal", "expected": "equal"}, {"measured": 2.0001}]
)
def test_a_record_that_can_have_passed_is_not(changed):
    assert list(contradictions(notebook(Record(**{**GOOD, **changed})))) == []


def test_a_line_that_shows_another_outcome_is_named():
    (said,) = contradictions(notebook(Record(**GOOD), "failed  demo.value  m"))
    assert said == "demo.value: its record says 'passed  demo.value  m', the notebook shows ['failed  demo.value  m']"
