"""Check what ruff cannot: words, links, and the layout of notebooks.

.venv/bin/python tools/lint_project.py          # a line for each finding, "file:line: text"; exit code 1 when there is one
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import yaml
from arrange_notebooks import arrange
from chapter_table import code_lines, size_of
from translate import page_anchors

from xpulab.files import NOTEBOOKS, ROOT, release_notebooks
from xpulab.harness.sections import read_sections

WORDS = {
    r"ways? round": "workaround",
    r"\bcur(?:e|es|ed|ing)\b": "fix, workaround",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\blet(?:s|ting)? loose\b": "inject a fault",
    r"\bsurviv(?:ed|or|ors)\b": "missed",
    r"\b(?:is|are|was|were|be|been) caught\b|\bcaught by\b": "detected",
    r"\bto blame\b|\bblam(?:e|es|ed|ing)\b|\bculprit": "root cause",
    r"\bvictims?\b|\bsuffers\b": "affected rank",
    r"\bparcels?\b": "serialize, dumps",
    r"\blifelines?\b": "keepalive pipe",
    r"\blast words\b": "error message, last log lines",
    r"\bmisfits?\b": "incomparable",
    r"\bsurroundings\b": "run context",
    r"\bhand(?:s|ed|ing)? on\b": "forward",
    r"\bpatience\b(?!=)": "timeout",
    r"\b(?:hold|holds|held|holding)(?: \w+){0,4} against\b": "compare with",
    r"\bnobody (?:is told|knows)\b|\b(?:is|are|be) told\b": "silently, is reported",
    r"\b(?:goes|go|went|gone) astray\b": "fails",
    r"\bshall\b": "must, will",
}
"""Regular expressions of words that readers stumble over, and what the glossary of CONTRIBUTING.md says to write instead."""
OF_CODE = ("xpulab/**/*.py", "xpulab/**/*.html", "xpulab/**/*.cc", "xpulab/**/*.h", "tools/**/*.py", "data/schema/*.json")
TEXTS = ("*.md", "docs/*.md", "env/*.md", "env/*.sh", "env/*.py", "env/operations/**/*.*", "data/*.md", "data/*.yaml", *OF_CODE)
NAME_THEM = ("CONTRIBUTING.md", "CHANGELOG.md", "lint_project.py")
"""The glossary itself, and what was called otherwise before."""

CELLS_WITHOUT_EXERCISES, LESSON_CELLS, EXERCISE_CELLS = 45, 30, 8
LESSON_LINES, LINES_OF_A_CELL, LINES_BESIDE_A_CHECK = 15, 30, 4
COPIED_WHOLE = {"16_zero_cost_checkpoints": 28}
"""Lines of a class that a reader copies, so that one cell holds all of it."""

Finding = tuple[Path, int, str]


def words(path: Path, text: str) -> Iterator[Finding]:
    """The forbidden words of a text."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, instead in WORDS.items():
            for word in re.finditer(pattern, line, re.IGNORECASE):
                yield path, number, f"{word.group()!r}: write {instead}"


def matching(*patterns: str) -> list[Path]:
    """The files of the repository that match."""
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


def all_words() -> Iterator[Finding]:
    """The forbidden words of documents, data, code and notebooks."""
    for path in matching(*TEXTS):
        if path.name not in NAME_THEM and not path.stem.endswith("_cn"):
            yield from words(path, path.read_text(encoding="utf-8"))
    for path in (*sorted(NOTEBOOKS.glob("*.ipynb")), *release_notebooks()):
        for cell in nbformat.read(path, as_version=4).cells:
            yield from words(path, cell.source)
            for output in cell.get("outputs", []):
                yield from words(path, output.get("text") or output.get("data", {}).get("text/plain", ""))


def leads_nowhere(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The line and the target of each link of a Markdown text that leads to no file, or to no heading of a Markdown file."""
    for number, line in enumerate(text.splitlines(), start=1):
        for link in re.findall(r"\]\((?!\w+:)([^)]*)\)", line):
            target, _, anchor = link.partition("#")
            file = path.parent / target if target else path
            is_page = file.suffix == ".md" and file.is_file()
            if not file.exists() or (anchor and is_page and anchor not in page_anchors(file.read_text(encoding="utf-8"))):
                yield number, link


def notebook(path: Path) -> Iterator[str]:
    """Where a notebook of the chapters or of the release is not as all are."""
    read = nbformat.read(path, as_version=4)
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    headings = [cell for cell in read.cells if cell.cell_type == "markdown" and re.match(r"#{2,3} ", cell.source)]
    undeclared = [cell.source.splitlines()[0] for cell in headings if "section" not in cell.metadata.get("xpulab", {})]
    shown = re.sub(r'"image/png": "[^"]*"', "", json.dumps(outputs))  # its letters may look like a path
    (parameters,) = [ast.parse(cell.source).body for cell in code if "parameters" in cell.metadata.get("tags", [])]
    longest = max(len(code_lines(cell.source)) for cell in code if "helper" not in cell.metadata.get("tags", []))
    wrong = {
        f"headings declare no section: {undeclared}": undeclared,
        f"a cell has {longest} lines": longest > LINES_OF_A_CELL,
        "its first parameters are not device, level, cards, seed": [ast.unparse(node).split()[0] for node in parameters[:4]]
        != ["device", "level", "cards", "seed"],
        "its last cell is not verdict()": code[-1].source.strip() != "verdict()",
        "its outputs are not those of one run": [c.execution_count for c in code] != list(range(1, len(code) + 1)),
        "an output is a warning": [output for output in outputs if output.get("name") == "stderr"],
        "an output holds a path": re.findall(r"/(?:home|root|tmp|usr(?!/bin/env)|work)/[\w./-]+", shown),
    }
    yield from (text for text, is_wrong in wrong.items() if is_wrong)


def chapter(path: Path, chapters: list[Path]) -> Iterator[str]:
    """Where a chapter is not laid out as all are."""
    read = nbformat.read(path, as_version=4)
    first = next(cell.source for cell in read.cells if cell.cell_type == "markdown")
    size, parts = size_of(path), [section.part for section in read_sections(path, read)]
    last_lesson = max(index for index, part in enumerate(parts[:-1]) if part == "lesson")
    wrong = {
        f"it has {size.cells} cells without exercises": size.cells > CELLS_WITHOUT_EXERCISES,
        f"its lesson has {size.lesson_cells} cells": size.lesson_cells > LESSON_CELLS,
        f"its exercises have {size.exercise_cells} cells": size.exercise_cells > EXERCISE_CELLS,
        f"a cell of its lesson has {size.longest_lesson_cell} lines": size.longest_lesson_cell
        > COPIED_WHOLE.get(path.stem, LESSON_LINES),
        f"a cell of its lesson has {size.most_beside_a_check} lines beside its check": size.most_beside_a_check
        > LINES_BESIDE_A_CHECK,
        "its lesson has fewer than four words for a line of code": size.lesson_words < 4 * size.visible_lines,
        "its proof begins before its lesson ends": "proof" in parts[:last_lesson],
        "run tools/arrange_notebooks.py on it": nbformat.writes(arrange(path, chapters)) + "\n" != path.read_text("utf-8"),
        "its first cell does not say what is needed and how long it takes": not (
            re.search(r"(?i)minute|second", first) and "need" in first.lower()
        ),
    }
    yield from (text for text, is_wrong in wrong.items() if is_wrong)


def findings() -> Iterator[Finding]:
    """All of the repository. Of a notebook the line is 1, since a reader knows only cells."""
    yield from all_words()
    for path in matching("*.md", "docs/**/*.md", "env/*.md", "data/*.md"):
        for line, link in leads_nowhere(path, path.read_text(encoding="utf-8")):
            yield path, line, f"the link {link} leads nowhere"
    chapters = sorted(NOTEBOOKS.glob("*.ipynb"))
    for path in (*chapters, *sorted(NOTEBOOKS.glob("zh/*.ipynb")), *release_notebooks()):
        texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
        yield from ((path, 1, f"the link {link} leads nowhere") for text in texts for _, link in leads_nowhere(path, text))
    for path in (*chapters, *release_notebooks()):
        yield from ((path, 1, text) for text in notebook(path))
    for path in chapters:
        yield from ((path, 1, text) for text in chapter(path, chapters))
    pins, hooks = (ROOT / "env/requirements/common.txt").read_text().splitlines(), ROOT / ".pre-commit-config.yaml"
    for hook in yaml.safe_load(hooks.read_text())["repos"][0]["hooks"]:
        for pin in set(hook.get("additional_dependencies", [])) - set(pins):
            yield hooks, 1, f"{pin} is not the version of env/requirements/common.txt"


if __name__ == "__main__":
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path, line, text in findings()]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
