"""Check what ruff cannot: words, links, the layout of chapters, and texts that repeat what another file decides.

.venv/bin/python tools/lint_project.py          # a line for each finding, "file:line: text"; exit code 1 when there is one
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat
import publish_grids
import yaml
from arrange_notebooks import arrange
from chapter_table import size_of
from translate import page_anchors

import xpulab
from xpulab.files import NOTEBOOKS, ROOT
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
TEXTS = ("*.md", "docs/*.md", "env/*.md", "env/*.sh", "env/*.py", "env/operations/**/*.*", "data/*.md", "data/*.yaml")
CODE = ("data/schema/*.json", "xpulab/**/*.py", "xpulab/**/*.html", "xpulab/**/*.cc", "xpulab/**/*.h", "tools/**/*.py")
NAME_THEM = {"CONTRIBUTING.md", "CHANGELOG.md", "lint_project.py"}
"""The glossary itself, and what was called otherwise before."""

CELLS, LESSON_CELLS, EXERCISE_CELLS, LESSON_LINES, PROOF_LINES, LINES_BESIDE_A_CHECK = 60, 30, 8, 15, 30, 4
COPIED_WHOLE = {"16_zero_cost_checkpoints": 28}
"""Lines of a class that a reader copies, so that one cell holds all of it."""
LESSONS_FIRST = ("02", "03", "04", "09", "10", "11", "13")
"""The chapters of whose visible code six tenths must be lesson; of the others' half."""

Finding = tuple[Path, int, str]


def words(path: Path, text: str) -> Iterator[Finding]:
    """The forbidden words of a text."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, instead in WORDS.items():
            for word in re.finditer(pattern, line, re.IGNORECASE):
                yield path, number, f"{word.group()!r}: write {instead}"


def matching(patterns: Iterable[str]) -> list[Path]:
    """The files of the repository that match."""
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


def all_words() -> Iterator[Finding]:
    """The forbidden words of documents, data, code and notebooks."""
    for path in matching(TEXTS + CODE):
        if path.name not in NAME_THEM and not path.stem.endswith("_cn"):
            yield from words(path, path.read_text(encoding="utf-8"))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            yield from words(path, cell.source)
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                yield from words(path, (output.get("text") or data.get("text/plain", "")) + "\n" + data.get("text/html", ""))


def leads_nowhere(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The line and the target of each link of a Markdown text that leads to no file, or to no heading of a Markdown file."""
    for number, line in enumerate(text.splitlines(), start=1):
        for link in re.findall(r"\]\((?!\w+:)([^)]*)\)", line):
            target, _, anchor = link.partition("#")
            file = path.parent / target if target else path
            is_page = file.suffix == ".md" and file.is_file()
            if not file.exists() or (anchor and is_page and anchor not in page_anchors(file.read_text(encoding="utf-8"))):
                yield number, link


def links(path: Path) -> Iterator[Finding]:
    """The links of a Markdown file that lead nowhere, and the files that it names and that are not there."""
    text = path.read_text(encoding="utf-8")
    yield from ((path, number, f"the link {link} leads nowhere") for number, link in leads_nowhere(path, text))
    if path.name == "CONTRIBUTING.md":
        for number, line in enumerate(text.splitlines(), start=1):
            for name in re.findall(r"\b(?:env|tools|data|xpulab|tests)/[\w./]*\w", line):
                if "NAME" not in name and not (ROOT / name).exists():
                    yield path, number, f"{name} is not there"


def chapter(path: Path, chapters: list[Path]) -> Iterator[Finding]:
    """Where a notebook is not laid out as all are; the line is 1, since a reader knows only cells."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    outputs = [output for cell in code for output in cell.outputs]
    (parameters,) = [ast.parse(cell.source).body for cell in code if "parameters" in cell.metadata.get("tags", [])]
    size, parts = size_of(path), [section.part for section in read_sections(path, notebook)]
    last_lesson = max(index for index, part in enumerate(parts[:-1]) if part == "lesson")
    wrong_links = [link for text in texts for _, link in leads_nowhere(NOTEBOOKS / path.name, text)]
    undeclared = [
        cell.source.splitlines()[0]
        for cell in notebook.cells
        if re.match(r"#{2,3} ", cell.source) and cell.cell_type == "markdown"
        if "section" not in cell.metadata.get("xpulab", {})
    ]
    bare = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    shown = re.sub(r'"image/png": "[^"]*"', "", json.dumps(outputs))  # its letters may look like a path
    wrong = {
        f"it has more than {CELLS} cells, or its lesson more than {LESSON_CELLS}": size.cells > CELLS
        or size.lesson_cells > LESSON_CELLS,
        f"its exercises have {size.exercise_cells} cells": size.exercise_cells > EXERCISE_CELLS,
        f"a cell of its lesson has {size.longest_lesson_cell} lines": size.longest_lesson_cell
        > COPIED_WHOLE.get(path.stem, LESSON_LINES),
        f"a cell of its lesson has {size.most_beside_a_check} lines beside its check": size.most_beside_a_check
        > LINES_BESIDE_A_CHECK,
        f"a cell of its proof has {size.longest_proof_cell} lines": size.longest_proof_cell > PROOF_LINES,
        f"headings declare no section: {undeclared}": undeclared,
        "its lesson has fewer than four words for a line of code": size.lesson_words < 4 * size.visible_lines,
        "its visible code is too much check": size.lesson_share < (0.6 if path.stem[:2] in LESSONS_FIRST else 0.5),
        "its proof begins before its lesson ends": "proof" in parts[:last_lesson],
        "run tools/arrange_notebooks.py on it": nbformat.writes(arrange(path, chapters)) + "\n" != path.read_text("utf-8"),
        "a cell ends with a value that nobody explains": [x for x in bare if re.fullmatch(r"[-\d.e]+|array\(.*\)", x, re.S)],
        "its first cell does not say what is needed and how long it takes": not (
            re.search(r"(?i)minute|second", texts[0]) and "need" in texts[0].lower()
        ),
        "its first parameters are not device, level, cards, seed": [ast.unparse(node).split()[0] for node in parameters[:4]]
        != ["device", "level", "cards", "seed"],
        "its last cell is not verdict()": code[-1].source.strip() != "verdict()",
        "its outputs are not those of one run": [c.execution_count for c in code] != list(range(1, len(code) + 1)),
        "an output is a warning": [output for output in outputs if output.get("name") == "stderr"],
        "an output holds a path": re.findall(r"/(?:home|root|tmp|usr(?!/bin/env)|work)/[\w./-]+", shown),
        f"links lead nowhere: {wrong_links}": wrong_links,
    }
    yield from ((path, 1, text) for text, is_wrong in wrong.items() if is_wrong)


def agreement() -> Iterator[Finding]:
    """Where a file repeats what another one decides, and they differ."""
    heading = "## Unreleased" if ".dev" in xpulab.__version__ else f"## {xpulab.__version__} - 20"
    if f"\n{heading}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield ROOT / "CHANGELOG.md", 1, f"has no entry {heading!r}"
    pins = (ROOT / "env/requirements/common.txt").read_text().splitlines()
    hooks = ROOT / ".pre-commit-config.yaml"
    for hook in yaml.safe_load(hooks.read_text())["repos"][0]["hooks"]:
        for pin in set(hook.get("additional_dependencies", [])) - set(pins):
            yield hooks, 1, f"{pin} is not the version of env/requirements/common.txt"
    documented = "".join(path.read_text(encoding="utf-8") for path in matching(("*.md", "docs/*.md")))
    workflow = ROOT / ".github/workflows/ci.yml"
    for command in re.findall(r"(?:run|command|-): (bash .*)|- (bash .*)", workflow.read_text()):
        if not re.search(rf"^    {re.escape(''.join(command))}\s*(#.*)?$", documented, re.M):
            yield workflow, 1, f"{''.join(command)!r} is not documented"
    page, recipes = ROOT / "docs/operations.md", ROOT / "env/operations"
    for path in matching(("env/operations/**/*",)):
        if f"(../{path.relative_to(ROOT)})" not in page.read_text(encoding="utf-8"):
            yield page, 1, f"does not name {path.relative_to(recipes)}"
        if path.suffix in (".sh", ".sbatch") and path.name != "settings.sh" and not os.access(path, os.X_OK):
            yield path, 1, "cannot be executed"


def findings() -> Iterator[Finding]:
    """All of the repository."""
    yield from all_words()
    for path in matching(("*.md", "docs/**/*.md", "env/*.md", "data/*.md")):
        yield from links(path)
    chapters = sorted(NOTEBOOKS.glob("*.ipynb"))
    for path in chapters:
        yield from chapter(path, chapters)
    for path in sorted((NOTEBOOKS / "zh").glob("*.ipynb")):
        texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
        yield from ((path, 1, f"the link {link} leads nowhere") for text in texts for _, link in leads_nowhere(path, text))
    yield from agreement()
    if publish_grids.page() != publish_grids.PAGE.read_text(encoding="utf-8"):
        yield publish_grids.PAGE, 1, "is not what the notebooks show: run tools/publish_grids.py"


if __name__ == "__main__":
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path, line, text in findings()]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
