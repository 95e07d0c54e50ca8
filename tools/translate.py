"""The Chinese edition: made from the English notebooks and files of translated Markdown cells.

    .venv/bin/python tools/translate.py write [NN ...]       # notebooks/zh/NAME.ipynb; without arguments all
    .venv/bin/python tools/translate.py check [--release]    # lists what is untranslated, stale or not written
    .venv/bin/python tools/translate.py accept NN CELL ...   # these translations fit the English cells of today
    .venv/bin/python tools/translate.py accept PAGE          # so does docs/zh/PAGE, or README_cn.md for README.md

notebooks/zh/text/NAME.md holds for each Markdown cell a line `<!-- cell ID HASH -->` and below it the translation. HASH says
which English text was translated. `write` adds cells, in English, with `new` for HASH. Links are written as in the English
text: `write` leads them to the Chinese pages, and an anchor to the heading at the same place there. Code, tags and metadata
come from the English notebook. An output of the Chinese notebook is kept where its code is unchanged and it shows the numbers
of the English output. A translated page begins with `<!-- of PAGE HASH -->`; one without is a summary, never stale.

Exit codes: 0 done, 1 a Chinese notebook is not what its files make, with --release also where anything is listed, 2 bad input.
"""

from __future__ import annotations

import copy
import hashlib
import posixpath
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from arrange_notebooks import arranged, notebook_anchor

from xpulab.errors import InputError
from xpulab.files import ROOT

CELL = re.compile(r"^<!-- cell (\S+) (\S+) -->\n", re.MULTILINE)
PAGE = re.compile(r"<!-- of (\S+) (\S+) -->\n")
WRITTEN_BY_TOOLS = re.compile(r"(<!-- (contents|next) -->).*?(<!-- /\2 -->)", re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
"""A code span or a fenced block, as its backticks and what is between them."""
LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)
CHINESE = re.compile(r"[\u4e00-\u9fff]")
IGNORED_OUTPUT = "nbval-ignore-output"

# ------------------------------------------------------------------------------------------------------------ the two editions


@dataclass(frozen=True)
class Translated:
    """The translation of a cell or page. of: the hash of the English text. line: where it begins in its file, from 1."""

    of: str
    text: str
    line: int


@dataclass(frozen=True)
class Edition:
    """Both languages of the book below a folder, which is the repository or looks like it."""

    root: Path = ROOT

    def text_file(self, name: str) -> Path:
        """The file with the translated cells of a chapter."""
        return self.root / "notebooks/zh/text" / f"{name}.md"

    @cached_property
    def english(self) -> dict[str, nbformat.NotebookNode]:
        """The English notebooks by name."""
        paths = sorted((self.root / "notebooks").glob("[0-9]*.ipynb"))
        return {path.stem: nbformat.read(path, as_version=4) for path in paths}

    @cached_property
    def texts(self) -> dict[str, dict[str, Translated]]:
        """The translated cells of each chapter that has a file of them, by the cell's id."""
        return {name: read_cells(self.text_file(name)) for name in self.english if self.text_file(name).exists()}

    @cached_property
    def chapters(self) -> list[str]:
        """The chapters of the Chinese edition: those whose first cell is translated."""
        first = {name: markdown(self.english[name])[0].id for name in self.texts}
        return [name for name, cells in self.texts.items() if first[name] in cells and CHINESE.search(cells[first[name]].text)]

    def chinese_of(self, path: str) -> str:
        """The Chinese page of a page, both as paths in the repository; the page itself where there is none."""
        folder, name = posixpath.split(path)
        if folder == "notebooks" and posixpath.splitext(name)[0] in self.chapters:
            return f"notebooks/zh/{name}"
        chinese = {"README.md": "README_cn.md"}.get(path, f"docs/zh/{name}" if folder == "docs" else "")
        return chinese if chinese and (self.root / chinese).is_file() else path

    def anchors(self, path: str) -> dict[str, str]:
        """For each anchor of an English page that of the heading at the same place of its Chinese page."""
        chinese = self.chinese_of(path)
        if path.endswith(".ipynb"):
            name = posixpath.splitext(posixpath.basename(path))[0]
            cells = self.texts[name] if chinese != path else {}
            found: dict[str, str] = {}
            for cell in markdown(self.english[name]):
                own = headings(cells[cell.id].text if cell.id in cells else cell.source)
                found |= dict(zip(map(notebook_anchor, headings(cell.source)), map(notebook_anchor, own), strict=False))
            return found
        before, after = (page_anchors((self.root / each).read_text(encoding="utf-8")) for each in (path, chinese))
        return dict(zip(before, after, strict=False)) if len(before) == len(after) else {}

    def link(self, target: str, anchor: str, english: str, chinese: str) -> str:
        """A link as the Chinese page needs it, from one as the English page has it.

        english, chinese: the two pages, as paths in the repository. anchor: with its #, or empty. Raises InputError where the
        English page has no such heading.
        """
        if ":" in target:
            return target + anchor
        path = posixpath.normpath(posixpath.join(posixpath.dirname(english), target)) if target else english
        if path == english and target:
            return posixpath.relpath(path, posixpath.dirname(chinese) or ".")  # a page's link to its other language
        own = self.chinese_of(path)
        if anchor and own != path:
            pairs = self.anchors(path)
            if pairs and anchor[1:] not in pairs:
                raise InputError(f"{chinese}: the link {target}{anchor} leads to no heading of {path}")
            anchor = f"#{pairs[anchor[1:]]}" if pairs else ""
        return ("" if own == chinese else posixpath.relpath(own, posixpath.dirname(chinese) or ".")) + anchor


def read_cells(path: Path) -> dict[str, Translated]:
    """The translated cells of a file by their ids. Raises InputError with file and line for what does not fit."""
    text = path.read_text(encoding="utf-8")
    starts = list(CELL.finditer(text))
    before = text[: starts[0].start()] if starts else text
    if before.strip():
        raise InputError(f"{path} line 1: text above the first line `<!-- cell ID HASH -->`; `write` adds missing cells")
    cells: dict[str, Translated] = {}
    for start, end in zip(starts, [*(match.start() for match in starts[1:]), len(text)], strict=True):
        line = text.count("\n", 0, start.start()) + 1
        if start[1] in cells:
            raise InputError(f"{path} line {line}: cell {start[1]} is there in line {cells[start[1]].line} too; remove one")
        cells[start[1]] = Translated(start[2], text[start.end() : end].strip("\n"), line)
    return cells


def markdown(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The Markdown cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def emptied(text: str) -> str:
    """The text of a cell without what tools write into it."""
    return WRITTEN_BY_TOOLS.sub(r"\1\n\3", text)


def digest(text: str) -> str:
    """What a translation names the English text of a cell or page by."""
    return hashlib.sha256(emptied(text).encode()).hexdigest()[:12]


def headings(text: str) -> list[str]:
    """The headings of a Markdown text, in order."""
    return HEADING.findall(re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE))


def page_anchors(text: str) -> list[str]:
    """The anchors of the headings of a Markdown text in order, as GitHub makes them."""
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(text)]
    seen: Counter[str] = Counter()
    unique = []
    for slug in slugs:
        unique.append(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return unique


def with_links(text: str, link: Callable[[str, str], str]) -> str:
    """The Markdown text with each link outside of code replaced by link(target, anchor)."""
    code = list(CODE.finditer(text))
    starts, ends = [0, *(each.end() for each in code)], [*(each.start() for each in code), len(text)]
    prose = [LINK.sub(lambda each: link(each[1], each[2] or ""), text[i:j]) for i, j in zip(starts, ends, strict=True)]
    return "".join(part for pair in zip(prose, [*(each[0] for each in code), ""], strict=True) for part in pair)


# -------------------------------------------------------------------------------------------------------------------- writing


def made(edition: Edition, name: str) -> nbformat.NotebookNode:
    """The Chinese notebook of a chapter, without the links between notebooks that tools write."""
    english, cells = edition.english[name], edition.texts[name]
    page, path = f"notebooks/{name}.ipynb", f"notebooks/zh/{name}.ipynb"
    notebook = copy.deepcopy(english)
    for cell in markdown(notebook):
        text = cells[cell.id].text if cell.id in cells else emptied(cell.source)
        if len(headings(text)) != len(headings(cell.source)) and cells[cell.id].of == digest(cell.source):
            where = f"{edition.text_file(name)} line {cells[cell.id].line}: cell {cell.id}"
            raise InputError(f"{where} has {len(headings(text))} headings, the English one {len(headings(cell.source))}")
        cell.source = with_links(text, lambda target, anchor: edition.link(target, anchor, page, path))
    notebook.metadata["xpulab"] |= {"title": chinese_title(english, markdown(notebook)[0].source), "language": "zh"}
    before = edition.root / path
    if before.exists():
        keep_outputs(notebook, nbformat.read(before, as_version=4))
    return notebook


def chinese_title(english: nbformat.NotebookNode, text: str) -> str:
    """The title of a chapter: its first heading; of one whose English title is the beginning of the heading, the beginning."""
    (before, *_), (after, *_) = headings(markdown(english)[0].source), headings(text)
    return after if before == english.metadata["xpulab"]["title"] else re.split(r"[:：,，]", after)[0].strip()


def keep_outputs(notebook: nbformat.NotebookNode, before: nbformat.NotebookNode) -> None:
    """Take over the outputs of the Chinese notebook as it was, where they are still those of the code."""
    cells = {cell.id: cell for cell in before.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        old = cells.get(cell.id)
        if cell.cell_type != "code" or old is None or old.source != cell.source:
            continue
        if IGNORED_OUTPUT in cell.metadata.get("tags", []) or shown_numbers(old) == shown_numbers(cell):
            cell.outputs, cell.execution_count = old.outputs, old.execution_count


def shown_numbers(cell: nbformat.NotebookNode) -> list[str]:
    """The numbers in the text of a cell's outputs: the same in each language."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return re.findall(r"\d+", "\n".join(texts))


def write(edition: Edition, names: Iterable[str]) -> list[str]:
    """Write the Chinese notebooks of these chapters, and into all of them the links between them; returns what changed."""
    folder, changed = edition.root / "notebooks/zh", []
    notebooks = {name: made(edition, name) for name in names}
    before = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.ipynb")}
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    paths = sorted(folder.glob("*.ipynb"))
    for path in paths:
        text = as_written(arranged(notebooks.get(path.stem) or nbformat.read(path, as_version=4), path, paths))
        path.write_text(text, encoding="utf-8")
        if text != before.get(path):
            changed.append(f"notebooks/zh/{path.name}")
    return changed


def as_written(notebook: nbformat.NotebookNode) -> str:
    """The text of the file of a notebook."""
    return nbformat.writes(notebook) + "\n"


def add_missing(edition: Edition, name: str) -> None:
    """Add the cells that a file of translations lacks, in English, each after its neighbour."""
    path = edition.text_file(name)
    blocks = [(cell, each.of, each.text) for cell, each in (read_cells(path) if path.exists() else {}).items()]
    known, place = [block[0] for block in blocks], 0
    for cell in markdown(edition.english[name]):
        if cell.id in known:
            place = [block[0] for block in blocks].index(cell.id)
        else:
            blocks.insert(place, (cell.id, "new", emptied(cell.source).strip("\n")))
        place += 1
    if len(blocks) > len(known):
        text = "\n".join(f"<!-- cell {cell} {of} -->\n{text}\n" for cell, of, text in blocks)
        path.write_text(text, encoding="utf-8")


def accept(edition: Edition, name: str, ids: Iterable[str]) -> None:
    """Write into a file of translations that these cells are translations of the English text of today."""
    path, english = edition.text_file(name), {cell.id: cell for cell in markdown(edition.english[name])}
    for cell in ids:
        if cell not in english or cell not in edition.texts.get(name, {}):
            raise InputError(f"{path}: no cell {cell!r} there and in the English notebook; `check` lists the stale ones")
        header, line = rf"^<!-- cell {re.escape(cell)} \S+ -->$", f"<!-- cell {cell} {digest(english[cell].source)} -->"
        path.write_text(re.sub(header, line, path.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")


def pages(edition: Edition) -> dict[str, str]:
    """The translated pages, as paths in the repository, by their English pages."""
    chinese = sorted(path.relative_to(edition.root).as_posix() for path in edition.root.glob("docs/zh/*.md"))
    found = {"README.md": "README_cn.md"} if (edition.root / "README_cn.md").is_file() else {}
    found |= {page.replace("docs/zh/", "docs/"): page for page in chinese}
    for english, page in found.items():
        if not (edition.root / english).is_file():
            raise InputError(f"{edition.root / page}: there is no {english} that it translates; remove it")
    return found


def accept_page(edition: Edition, name: str) -> None:
    """Write into a translated page that it is a translation of the English page of today."""
    found = pages(edition)
    english = next((page for page in found if name in (page, posixpath.basename(page), found[page])), None)
    if english is None:
        raise InputError(f"{name}: neither the number of a chapter nor a translated page; those are {', '.join(found)}")
    path, hashed = edition.root / found[english], digest((edition.root / english).read_text(encoding="utf-8"))
    text = PAGE.sub("", path.read_text(encoding="utf-8"), count=1)
    path.write_text(f"<!-- of {english} {hashed} -->\n{text}", encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------------- comparing


def unfinished(edition: Edition) -> list[str]:
    """What a translator still has to do: missing, untranslated and stale cells and pages."""
    found = []
    for name, english in edition.english.items():
        cells, path = edition.texts.get(name, {}), f"notebooks/zh/text/{name}.md"
        for cell in markdown(english):
            if cell.id not in cells:
                found.append(f"{path}: cell {cell.id} is missing: translate.py write {name[:2]}")
            elif cells[cell.id].of != digest(cell.source):
                found.append(f"{path} line {cells[cell.id].line}: cell {cell.id} is new or stale: its English text changed")
        for gone in cells.keys() - {cell.id for cell in markdown(english)}:
            found.append(f"{path} line {cells[gone].line}: cell {gone} is not in the English notebook any more")
    for english_page, page in pages(edition).items():
        header = PAGE.match((edition.root / page).read_text(encoding="utf-8"))
        english_text = (edition.root / english_page).read_text(encoding="utf-8")
        if header and (header[1], header[2]) != (english_page, digest(english_text)):
            found.append(f"{page} line 1: is stale: {english_page} changed")
    return found


def unwritten(edition: Edition) -> list[str]:
    """The Chinese notebooks that are not what `write` makes of their files: code, tags, metadata, links and text."""
    found, folder = [], edition.root / "notebooks/zh"
    paths = [folder / f"{name}.ipynb" for name in edition.chapters]
    for path in paths:
        if not path.exists() or path.read_text("utf-8") != as_written(arranged(made(edition, path.stem), path, paths)):
            found.append(f"notebooks/zh/{path.name}: is not what its files make: translate.py write {path.stem[:2]}")
    return found


def check(edition: Edition, is_release: bool) -> int:
    """Print what is unfinished and what is wrong; returns the exit code."""
    todo, wrong = unfinished(edition), unwritten(edition)
    for text in [*todo, *(f"WRONG: {text}" for text in wrong)]:
        print(text)
    print(f"{len(edition.chapters)} chapters, {len(pages(edition))} pages; {len(todo)} to do, {len(wrong)} wrong")
    return 1 if wrong or (is_release and todo) else 0


# ---------------------------------------------------------------------------------------------------------------- command line


def chapter(edition: Edition, given: str) -> str:
    """The name of a chapter, from its number, its name or its file."""
    stem = Path(given).stem
    found = [name for name in edition.english if stem == name or (given.isdecimal() and int(given) == int(name[:2]))]
    if not found:
        raise InputError(f"no chapter {given!r}; the chapters are {', '.join(edition.english)}")
    return found[0]


def main(arguments: list[str], edition: Edition | None = None) -> int:
    """Run one of the commands above; returns the exit code."""
    edition = edition or Edition()
    command, given = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        if command == "check" and given in ([], ["--release"]):
            return check(edition, is_release=bool(given))
        if command == "write":
            names = [chapter(edition, each) for each in given] or edition.chapters
            for name in names:
                add_missing(edition, name)
            edition = Edition(edition.root)
            if left := [name for name in names if name not in edition.chapters]:
                raise InputError(f"{edition.text_file(left[0])}: its first cell is not translated yet")
            print("\n".join(write(edition, names)) or "nothing to change")
        elif command == "accept" and len(given) > 1:
            accept(edition, chapter(edition, given[0]), given[1:])
        elif command == "accept" and len(given) == 1:
            accept_page(edition, given[0])
        else:
            raise InputError(f"usage:{(__doc__ or '').split('.', 1)[1].split('notebooks/zh/text')[0]}")
    except InputError as error:
        print(f"translate.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
