"""Write into the notebooks what can be computed: table of contents, links to the neighbours, proof cells that are collapsed.

    .venv/bin/python tools/arrange_notebooks.py [NOTEBOOK ...]        # all English notebooks without arguments
    .venv/bin/python tools/arrange_notebooks.py --check               # exit code 1 when one of them would change

In the first cell the text between `<!-- contents -->` and `<!-- /contents -->` is replaced, in the last Markdown cell that
between `<!-- next -->` and `<!-- /next -->`. Code cells of sections whose part is "proof" are tagged `proof` and collapsed;
code cells tagged `helper` are collapsed too, and so is the heading of the proof with all that is below it. tools/translate.py
does the same with the notebooks of the Chinese edition.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat

from xpulab import files
from xpulab.harness.sections import read_sections

COLLAPSED = "source_hidden"
HEADING_COLLAPSED = "jp-MarkdownHeadingCollapsed"
LESSON_HEADING = re.compile(r"^## +(.+)", re.MULTILINE)
WORDS = {
    "en": {"previous": "Previous: ", "next": "Next: ", "contents": "**Contents**", "back": "Back to the beginning: "},
    "zh": {"previous": "上一章：", "next": "下一章：", "contents": "**目录**", "back": "回到第一章："},
}
"""What the links of a notebook begin with, by the language in its metadata; a notebook that names none is English."""


def arrange(path: Path, chapters: list[Path]) -> nbformat.NotebookNode:
    """The notebook with its links, tags and collapsed cells as they must be. Raises SystemExit where a marker is missing."""
    return arranged(nbformat.read(path, as_version=4), path, chapters)


def arranged(notebook: nbformat.NotebookNode, path: Path, chapters: list[Path]) -> nbformat.NotebookNode:
    """The same of a notebook that the file need not hold yet; its neighbours are read from their files."""
    texts = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    first, last = texts[0], texts[-1]
    first.source = _between(path, first.source, "contents", contents(notebook, path, chapters))
    last.source = _between(path, last.source, "next", next_line(notebook, path, chapters))
    _collapse(path, notebook)
    return notebook


def contents(notebook: nbformat.NotebookNode, path: Path, chapters: list[Path]) -> str:
    """The line with the neighbours, and a linked list of the headings of the second level."""
    headings = [
        heading for cell in notebook.cells if cell.cell_type == "markdown" for heading in LESSON_HEADING.findall(cell.source)
    ]
    words = _words(notebook)
    neighbours = [_neighbour(words["previous"], path, chapters, -1), _neighbour(words["next"], path, chapters, +1)]
    lines = [" · ".join(filter(None, neighbours)), "", words["contents"], ""]
    return "\n".join(lines + [f"- [{heading}](#{anchor(heading)})" for heading in headings])


def next_line(notebook: nbformat.NotebookNode, path: Path, chapters: list[Path]) -> str:
    """The line that leads to the next chapter; of the last one to the first."""
    words = _words(notebook)
    return _neighbour(words["next"], path, chapters, +1) or _neighbour(words["back"], path, chapters, -chapters.index(path))


def anchor(heading: str) -> str:
    """The anchor of a heading in JupyterLab and in pages made by nbconvert."""
    if re.search(r"[`*_\[\]<>]", heading):
        raise SystemExit(f"heading {heading!r}: write it without markup, because links lead to it")
    return notebook_anchor(heading.strip())


def notebook_anchor(heading: str) -> str:
    """The anchor that JupyterLab gives to a heading, whatever is in it."""
    return heading.replace(" ", "-")


def title(path: Path) -> str:
    """The title of a chapter, from its metadata."""
    return nbformat.read(path, as_version=4).metadata["xpulab"]["title"]


def _words(notebook: nbformat.NotebookNode) -> dict[str, str]:
    return WORDS[notebook.metadata["xpulab"].get("language", "en")]


def _neighbour(word: str, path: Path, chapters: list[Path], step: int) -> str:
    index = chapters.index(path) + step
    if not 0 <= index < len(chapters):
        return ""
    other = chapters[index]
    return f"{word}[{other.stem[:2]} {title(other)}]({other.name})"


def _between(path: Path, text: str, marker: str, content: str) -> str:
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{path}: its {'first' if marker == 'contents' else 'last'} Markdown cell needs {start} and {end}")
    return f"{before}{start}\n{content}\n{end}{after}"


def _collapse(path: Path, notebook: nbformat.NotebookNode) -> None:
    proof = {index for section in read_sections(path, notebook) if section.part == "proof" for index in section.cells}
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown" and index in proof and LESSON_HEADING.match(cell.source):
            cell.metadata[HEADING_COLLAPSED] = True
        else:
            cell.metadata.pop(HEADING_COLLAPSED, None)
    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    for index in code:
        cell = notebook.cells[index]
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != "proof"]
        is_proof = index in proof and index != code[-1]
        if is_proof:
            tags.append("proof")
        jupyter = {key: value for key, value in cell.metadata.get("jupyter", {}).items() if key != COLLAPSED}
        if is_proof or "helper" in tags:
            jupyter[COLLAPSED] = True
        for key, value in (("tags", tags), ("jupyter", jupyter)):
            if value:
                cell.metadata[key] = value
            else:
                cell.metadata.pop(key, None)


def main(arguments: list[str]) -> int:
    """Arrange the notebooks, or with --check say which of them are not; returns the exit code."""
    only_check = "--check" in arguments
    chapters = sorted(files.NOTEBOOKS.glob("*.ipynb"))
    asked = [files.NOTEBOOKS / Path(each).name for each in arguments if each != "--check"] or chapters
    stale = []
    for path in asked:
        text = nbformat.writes(arrange(path, chapters)) + "\n"
        if text != path.read_text(encoding="utf-8"):
            stale.append(path)
            if not only_check:
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path.name}: {'run tools/arrange_notebooks.py on it' if only_check else 'arranged'}")
    return 1 if stale and only_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
