"""Measure a chapter: how much is lesson and how much is proof; for tools/lint_project.py, which has the limits.

Code lines are lines that are neither blank nor a comment. Visible code is that of cells which JupyterLab does not collapse.
The lesson share is the part of the visible code that is not a check.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from xpulab.harness.sections import read_sections
from xpulab.records.planned import python_of


@dataclass(frozen=True)
class ChapterSize:
    """How large a chapter is.

    cells: all but exercises and links. lesson_cells: those of the sections before the proof; a cell of the lesson that holds a
        check is not counted, so that checks stand in cells of their own. exercise_cells: of exercises.
    visible_lines, check_lines: of visible code, of visible code that is a check.
    lesson_words: words of the text above the proof.
    longest_lesson_cell: the most code lines of a visible cell, without its checks. longest_proof_cell: of a cell of the proof.
    most_beside_a_check: the most code lines that stand beside a check in a cell of the lesson.
    """

    cells: int
    lesson_cells: int
    exercise_cells: int
    visible_lines: int
    check_lines: int
    lesson_words: int
    longest_lesson_cell: int
    longest_proof_cell: int
    most_beside_a_check: int

    @property
    def lesson_share(self) -> float:
        """The part of the visible code that is not a check, 0 to 1."""
        return 1 - self.check_lines / self.visible_lines


def size_of(path: Path) -> ChapterSize:
    """Measure one notebook."""
    notebook = nbformat.read(path, as_version=4)
    sections = read_sections(path, notebook)
    proof, exercises = (
        {index for section in sections if section.part == part for index in section.cells} for part in ("proof", "exercise")
    )
    last = max(index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    proof -= {last}
    lesson = range(sections[0].cells.start, min(proof, default=len(notebook.cells)))
    code = [cell for index, cell in enumerate(notebook.cells) if cell.cell_type == "code" and index not in exercises]
    visible = [cell for cell in code if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    proof_code = [notebook.cells[index] for index in sorted(proof) if notebook.cells[index].cell_type == "code"]
    lesson_text = [
        cell for index, cell in enumerate(notebook.cells) if cell.cell_type == "markdown" and index not in proof | exercises
    ]
    beside = [
        lines_beside_checks(cell.source)
        for cell in (notebook.cells[index] for index in lesson)
        if cell.cell_type == "code" and check_lines(cell.source)
    ]
    return ChapterSize(
        cells=len(notebook.cells) - len(exercises),
        lesson_cells=len(lesson) - len(beside),
        exercise_cells=len(exercises),
        visible_lines=sum(len(code_lines(cell.source)) for cell in visible),
        check_lines=sum(len(check_lines(cell.source)) for cell in visible),
        lesson_words=sum(map(_words, lesson_text)),
        longest_lesson_cell=max(len(code_lines(cell.source) - check_lines(cell.source)) for cell in visible),
        longest_proof_cell=max(len(code_lines(cell.source)) for cell in proof_code),
        most_beside_a_check=max(beside, default=0),
    )


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that are neither blank nor a comment."""
    lines = enumerate(source.splitlines(), start=1)
    return {number for number, line in lines if line.strip() and not line.strip().startswith("#")}


def check_lines(source: str) -> set[int]:
    """The numbers of the code lines that belong to a check: a call of `check`, or the block of a table."""
    tree = ast.parse(python_of(source))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_check(node)]
    spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in checks]
    return {line for span in spans for line in span} & code_lines(source)


def lines_beside_checks(source: str) -> int:
    """How many code lines the statements have that neither hold a check nor give a text its name."""
    others = [
        node
        for node in ast.parse(python_of(source)).body
        if not any(_calls_check(each) for each in ast.walk(node))
        and not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
    ]
    spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in others]
    return len({line for span in spans for line in span} & code_lines(source))


def _is_check(node: ast.stmt) -> bool:
    if isinstance(node, ast.With):
        return any(_calls_check(item.context_expr) for item in node.items)
    return isinstance(node, ast.Expr) and _calls_check(node.value)


def _calls_check(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "check"


def _words(cell: NotebookNode) -> int:
    text = re.sub(r"<!--.*?-->", "", cell.source, flags=re.DOTALL)
    return len(text.split())
