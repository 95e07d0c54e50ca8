"""Check what ruff cannot: words, links, and the layout of notebooks.

.venv/bin/python tools/lint_project.py          # a line for each finding, "file:line: text"; exit code 1 when there is one
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat
import yaml
from arrange_notebooks import arrange
from translate import page_anchors

from xpulab.files import NOTEBOOKS, ROOT, release_notebooks
from xpulab.harness.sections import read_sections
from xpulab.records.planned import python_of

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
    r"\bpatience\b(?![=`])": "timeout",
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

CELLS_WITHOUT_EXERCISES, LESSON_CELLS = 45, 30
"""The most; of the lesson a cell that holds a check is not counted, so that checks stand in cells of their own."""
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
    (of_parameters,) = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    parameters = list(bound_in(of_parameters.source))
    anew = {name for cell in code if cell is not of_parameters for name in {*parameters} & {*bound_in(cell.source)}}
    own = [cell for cell in code if "helper" not in cell.metadata.get("tags", []) and path.stem not in COPIED_WHOLE]
    longest = max((len(cell.source.splitlines()) for cell in own), default=0)
    wrong = {
        f"headings declare no section: {undeclared}": undeclared,
        f"a cell has {longest} lines": longest > LINES_OF_A_CELL,
        "its first parameters are not device, level, cards, seed": parameters[:4] != ["device", "level", "cards", "seed"],
        f"cells set parameters anew, which papermill sets: {sorted(anew)}": anew,
        "its last cell is not verdict()": code[-1].source.strip() != "verdict()",
        "its outputs are not those of one run": [c.execution_count for c in code] != list(range(1, len(code) + 1)),
        "an output is a warning": [output for output in outputs if output.get("name") == "stderr"],
        "an output holds a path": re.findall(r"/(?:home|root|tmp|usr(?!/bin/env)|work)/[\w./-]+", shown),
    }
    yield from (text for text, is_wrong in wrong.items() if is_wrong)


def chapter(path: Path, chapters: list[Path]) -> Iterator[str]:
    """Where a chapter is not laid out as all are. Visible code is that of cells which JupyterLab does not collapse."""
    read = nbformat.read(path, as_version=4)
    first = next(cell.source for cell in read.cells if cell.cell_type == "markdown")
    sections = read_sections(path, read)
    parts = [section.part for section in sections]
    proof, exercises = (
        {index for each in sections if each.part == part for index in each.cells} for part in ("proof", "exercise")
    )
    end = min(proof - {len(read.cells) - 1}, default=len(read.cells))
    code = [cell for index, cell in enumerate(read.cells) if cell.cell_type == "code" and index not in exercises]
    visible = [cell.source for cell in code if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    texts = [
        re.sub(r"<!--.*?-->", "", cell.source, flags=re.DOTALL)
        for index, cell in enumerate(read.cells)
        if cell.cell_type == "markdown" and index not in proof | exercises
    ]
    beside = [
        lines_beside_checks(cell.source)
        for cell in read.cells[sections[0].cells.start : end]
        if cell.cell_type == "code" and checks_in(cell.source)
    ]
    cells, lesson_cells = len(read.cells) - len(exercises), end - sections[0].cells.start - len(beside)
    longest = max(map(lines_without_checks, visible))
    wrong = {
        f"it has {cells} cells without exercises": cells > CELLS_WITHOUT_EXERCISES,
        f"its lesson has {lesson_cells} cells": lesson_cells > LESSON_CELLS,
        f"a cell of its lesson has {longest} lines": longest > COPIED_WHOLE.get(path.stem, LESSON_LINES),
        f"a cell of its lesson has {max(beside, default=0)} lines beside its check": max(beside, default=0)
        > LINES_BESIDE_A_CHECK,
        "its lesson has fewer than four words for a line of code": sum(len(text.split()) for text in texts)
        < 4 * sum(len(code_lines(source)) for source in visible),
        "its proof begins before its lesson ends": "proof"
        in parts[: max(at for at, part in enumerate(parts[:-1]) if part == "lesson")],
        "run tools/arrange_notebooks.py on it": nbformat.writes(arrange(path, chapters)) + "\n" != path.read_text("utf-8"),
        "its first cell does not say what is needed and how long it takes": not (
            re.search(r"(?i)minute|second", first) and "need" in first.lower()
        ),
    }
    yield from (text for text, is_wrong in wrong.items() if is_wrong)


def bound_in(source: str) -> Iterator[str]:
    """The names of the notebook that a cell binds: assigned, deleted, imported, defined, or those of a loop, `with` or `match`.

    Not those within a function, a class or a comprehension, but for `global` and `:=`; symtable of 3.12 reports these too.
    """
    nodes: list[ast.AST] = [ast.parse(python_of(source))]
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield getattr(node, "name", "")
            yield from (name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)
            continue
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            yield from (inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
            continue
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
            yield getattr(node, "name", None) or getattr(node, "rest", None) or ""
        nodes[:0] = ast.iter_child_nodes(node)


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that are neither blank nor a comment."""
    lines = enumerate(source.splitlines(), start=1)
    return {number for number, line in lines if line.strip() and not line.strip().startswith("#")}


def lines_without_checks(source: str) -> int:
    """How many code lines belong neither to a call of `check` nor to the block of a table."""
    return len(code_lines(source) - _lines_of(checks_in(source)))


def lines_beside_checks(source: str) -> int:
    """How many code lines the statements have that neither hold a check nor give a text its name."""
    others = [
        node
        for node in ast.parse(python_of(source)).body
        if not any(map(_calls_check, ast.walk(node)))
        and not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
    ]
    return len(code_lines(source) & _lines_of(others))


def checks_in(source: str) -> list[ast.stmt]:
    """The calls of `check`, and the blocks of its tables."""
    return [node for node in ast.walk(ast.parse(python_of(source))) if isinstance(node, ast.stmt) and _is_check(node)]


def _lines_of(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _is_check(node: ast.stmt) -> bool:
    if isinstance(node, ast.With):
        return any(_calls_check(item.context_expr) for item in node.items)
    return isinstance(node, ast.Expr) and _calls_check(node.value)


def _calls_check(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "check"


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
    pins = [line.split()[0] for line in (ROOT / "env/requirements/common.txt").read_text().splitlines()]
    hooks = ROOT / ".pre-commit-config.yaml"
    for hook in yaml.safe_load(hooks.read_text())["repos"][0]["hooks"]:
        for pin in set(hook.get("additional_dependencies", [])) - set(pins):
            yield hooks, 1, f"{pin} is not the version of env/requirements/common.txt"


if __name__ == "__main__":
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path, line, text in findings()]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
