"""The Chinese edition: made from the English notebooks and files of translated Markdown cells.

    .venv/bin/python tools/translate.py write [NN ...]       # notebooks/zh/NAME.ipynb; without arguments all
    .venv/bin/python tools/translate.py check                # lists what is missing, stale or wrong
    .venv/bin/python tools/translate.py new NN ...           # adds the cells that a file of translations lacks, in English
    .venv/bin/python tools/translate.py accept NN CELL ...   # these translations fit the English cells of today
    .venv/bin/python tools/translate.py accept PAGE          # so does docs/zh/PAGE, or README_cn.md for README.md
    .venv/bin/python tools/translate.py links                # leads the links of docs/zh/*.md and README_cn.md to Chinese pages
    .venv/bin/python tools/translate.py made                 # docs/zh/PAGE of each page that a tool makes, see MADE

notebooks/zh/text/NAME.md holds for each Markdown cell a line `<!-- cell ID HASH -->` and below it the translation. HASH says
which English text was translated. Links are written as in the English text: `write` leads them to the Chinese pages, and an
anchor to the heading at the same place there. Code, tags and metadata come from the English notebook. An output of the
Chinese notebook is kept where its code is unchanged and it shows the numbers of the English output. A page that a tool makes
is translated line by line and cell by cell with the catalogue of messages (tools/messages.py).

Exit codes: 0 done, 1 a Chinese notebook differs from the English one in what is not text, 2 bad input. Stale and missing
translations are listed and are no error.
"""

from __future__ import annotations

import copy
import hashlib
import posixpath
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from arrange_notebooks import arranged, notebook_anchor

from xpulab import messages
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
NUMBER = re.compile(r"\d+(?:,\d{3}(?!\d))*(?:\.\d+)?")
UNITS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "万": 1e4, "亿": 1e8, "百万": 1e6, "十亿": 1e9}
WITH_UNIT = re.compile(rf"({NUMBER.pattern})\s?(thousand|million|billion|百万|十亿|万|亿)")
RANGE_WITH_UNIT = re.compile(r"(\d+) (to|or|and) (\d+)\s(thousand|million|billion)")
WORDS = {
    **dict(zero=0, one=1, two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, eleven=11, twelve=12),
    **dict(sixteen=16, twenty=20, hundred=100, thousand=1000),
    **dict(a=1, an=1, single=1, once=1, first=1, twice=2, both=2, second=2, pair=2, half=2, third=3, fourth=4),
}
"""English words for which a translation may have a digit."""
NUMERALS = {float(number): numeral for number, numeral in enumerate("零一二三四五六七八九十")} | {16.0: "十六"}
"""What a translation may have for a digit; for 2 also 两."""
IGNORED_OUTPUT = "nbval-ignore-output"
MADE = ("docs/faults.md", "docs/grids.md", "docs/releases.md")
"""Pages that tools make: of these the Chinese page is made, too."""
OF_NAMES = ("fault", "check", "capability", "first failing check", "axis", "values, the default first", "release", "date")
"""Titles of the columns of such pages whose cells are the same in each language."""
MARKER = re.compile(r"(#{1,6} +|- |)(.*)")
"""What makes a line of Markdown a heading or an item, and its text."""
CELL_END = re.compile(r"(?<!\\)\|")
ESCAPED = re.compile(r"\\([`|<>*_\[\]$])")
SPECIAL = re.compile(r"([`|<>*_\[\]$])")


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
        chinese = {"README.md": "README_cn.md"}.get(
            path, f"docs/zh/{name}" if folder == "docs" and name.endswith(".md") else ""
        )
        return chinese if chinese and (self.root / chinese).is_file() else path

    def english_of(self, path: str) -> str:
        """The English page of a Chinese one, both as paths in the repository; any other path itself."""
        return {"README_cn.md": "README.md"}.get(path, re.sub(r"^(docs|notebooks)/zh/", r"\1/", path))

    def anchors(self, path: str) -> dict[str, str]:
        """For each anchor of an English page that of the heading at the same place of its Chinese page."""
        chinese = self.chinese_of(path)
        if path.endswith(".ipynb"):
            name = posixpath.splitext(posixpath.basename(path))[0]
            cells = self.texts[name] if chinese != path else {}
            pairs = [
                (cell.source, cells[cell.id].text if cell.id in cells else cell.source) for cell in markdown(self.english[name])
            ]
            return {
                notebook_anchor(before): notebook_anchor(after)
                for english, translated in pairs
                for before, after in zip(headings(english), headings(translated), strict=False)
            }
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
        raise InputError(
            f"{path} line 1: text above the first line `<!-- cell ID HASH -->`; `translate.py new` adds missing cells"
        )
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
    """What a translation names the English text by."""
    return text_digest(emptied(text).encode())


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
    folder = edition.root / "notebooks/zh"
    for path in folder.glob("*.ipynb"):
        if path.stem not in edition.chapters:
            path.unlink()
    notebooks = {name: made(edition, name) for name in names}
    before = {
        name: path.read_text(encoding="utf-8") for name in edition.chapters if (path := folder / f"{name}.ipynb").exists()
    }
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    paths = sorted(folder.glob("*.ipynb"))
    for path in paths:
        notebook = notebooks.get(path.stem) or nbformat.read(path, as_version=4)
        path.write_text(nbformat.writes(arranged(notebook, path, paths)) + "\n", encoding="utf-8")
    return [path.stem for path in paths if before.get(path.stem) != path.read_text(encoding="utf-8")]


def add_missing(edition: Edition, name: str) -> list[str]:
    """Add the cells that a file of translations lacks, in English, each after its neighbour; returns their ids."""
    path = edition.text_file(name)
    blocks = [(cell, each.of, each.text) for cell, each in (read_cells(path) if path.exists() else {}).items()]
    known, place, added = {block[0] for block in blocks}, 0, []
    for cell in markdown(edition.english[name]):
        if cell.id in known:
            place = [block[0] for block in blocks].index(cell.id) + 1
            continue
        blocks.insert(place, (cell.id, digest(cell.source), emptied(cell.source).strip("\n")))
        added.append(cell.id)
        place += 1
    path.write_text("\n".join(f"<!-- cell {cell} {of} -->\n{text}\n" for cell, of, text in blocks), encoding="utf-8")
    return added


def accept(edition: Edition, name: str, ids: Iterable[str]) -> None:
    """Write into a file of translations that these cells are translations of the English text of today."""
    path, english = edition.text_file(name), {cell.id: cell for cell in markdown(edition.english[name])}
    for cell in ids:
        if cell not in english or cell not in edition.texts.get(name, {}):
            raise InputError(
                f"{path}: no cell {cell!r} there and in the English notebook; `translate.py check` lists the stale ones"
            )
        text = path.read_text(encoding="utf-8")
        line = rf"^<!-- cell {re.escape(cell)} \S+ -->$"
        path.write_text(
            re.sub(line, f"<!-- cell {cell} {digest(english[cell].source)} -->", text, flags=re.M), encoding="utf-8"
        )


def pages(edition: Edition) -> dict[str, str]:
    """The translated pages, as paths in the repository, by their English pages."""
    chinese = sorted(path.relative_to(edition.root).as_posix() for path in edition.root.glob("docs/zh/*.md"))
    found = {edition.english_of(page): page for page in ["README_cn.md", *chinese] if (edition.root / page).is_file()}
    for english, page in found.items():
        if not (edition.root / english).is_file():
            raise InputError(f"{edition.root / page}: there is no {english} that it translates; remove it")
    return found


def page_digest(edition: Edition, english: str) -> str:
    """What a translated page names its English page by."""
    return text_digest((edition.root / english).read_bytes())


def text_digest(text: bytes) -> str:
    """The beginning of a hash."""
    return hashlib.sha256(text).hexdigest()[:12]


def accept_page(edition: Edition, name: str) -> None:
    """Write into a translated page that it is a translation of the English page of today."""
    english = next((page for page in pages(edition) if name in (page, posixpath.basename(page), pages(edition)[page])), None)
    if english is None:
        raise InputError(
            f"{name}: neither the number of a chapter nor a translated page; those are {', '.join(pages(edition))}"
        )
    path = edition.root / pages(edition)[english]
    text = PAGE.sub("", path.read_text(encoding="utf-8"), count=1)
    path.write_text(f"<!-- of {english} {page_digest(edition, english)} -->\n{text}", encoding="utf-8")


def page_link(edition: Edition, target: str, anchor: str, english: str, chinese: str) -> str:
    """A link as a translated page needs it, from one as its English page has it, or as this function made it before."""
    if ":" in target or not target + anchor:
        return target + anchor
    as_made = posixpath.normpath(posixpath.join(posixpath.dirname(chinese), target)) if target else chinese
    if target and not (edition.root / as_made).exists() and edition.english_of(as_made) == as_made:
        return edition.link(target, anchor, english, chinese)
    path = edition.english_of(as_made)
    if anchor and edition.chinese_of(path) != path and anchor[1:] in edition.anchors(path).values():
        return (
            "" if path == english else posixpath.relpath(edition.chinese_of(path), posixpath.dirname(chinese) or ".")
        ) + anchor
    if path == english and target:
        return target + anchor
    return edition.link(posixpath.relpath(path, posixpath.dirname(english) or ".") if target else "", anchor, english, chinese)


def lead_links(edition: Edition) -> list[str]:
    """Lead the links of all translated pages to Chinese pages; returns the pages that changed."""
    changed = []
    for english, chinese in pages(edition).items():
        path = edition.root / chinese
        text = path.read_text(encoding="utf-8")

        def link(target: str, anchor: str, english: str = english, chinese: str = chinese) -> str:
            return page_link(edition, target, anchor, english, chinese)

        if (new := with_links(text, link)) != text:
            path.write_text(new, encoding="utf-8")
            changed.append(chinese)
    return changed


# ------------------------------------------------------------------------------------------------------- pages that tools make


def publish(page: Path, text: str) -> None:
    """Write a page that a tool makes, one of MADE, and the Chinese one below zh/ beside it."""
    page.write_text(text, encoding="utf-8")
    chinese = page.parent / "zh" / page.name
    chinese.parent.mkdir(exist_ok=True)
    chinese.write_text(made_page(Edition(), f"docs/{page.name}", text), encoding="utf-8")


def made_page(edition: Edition, english: str, text: str) -> str:
    """The Chinese page of one that a tool makes. english: its path in the repository. text: the English page."""
    titles: list[str] = []
    lines = []
    for line in text.splitlines():
        is_row = line.startswith("|")
        if is_row and not titles:
            titles = cells_of(line)
            line = row_of(map(translated, titles))
        elif is_row and not re.fullmatch(r"[|:-]+", line):
            cells = zip(titles, cells_of(line), strict=True)
            line = row_of(cell if title in OF_NAMES else translated(cell) for title, cell in cells)
        elif not is_row:
            titles = []
            if not line.startswith("    "):
                marker, rest = MARKER.fullmatch(line).groups()  # type: ignore[union-attr]  # it fits every line
                line = marker + translated(rest)
        lines.append(line)
    made = "\n".join(lines) + "\n"
    own_anchors = dict(zip(page_anchors(text), page_anchors(made), strict=True))
    chinese = f"docs/zh/{posixpath.basename(english)}"

    def link(target: str, anchor: str) -> str:
        return edition.link(target, anchor, english, chinese) if target else f"#{own_anchors[anchor[1:]]}"

    return f"<!-- of {english} {text_digest(text.encode())} -->\n{with_links(made, link)}"


def cells_of(row: str) -> list[str]:
    """The cells of a row of a table, as they are written."""
    return [cell.strip() for cell in CELL_END.split(row)[1:-1]]


def row_of(cells: Iterable[str]) -> str:
    """The row of a table."""
    return f"| {' | '.join(cells)} |"


def translated(text: str) -> str:
    """A line or cell of Markdown in Chinese; what the catalogue does not have stays. Where all of it is escaped, so is that."""
    catalogue = messages.catalogue("zh")
    plain = ESCAPED.sub(r"\1", text)
    if plain != text and SPECIAL.sub(r"\\\1", plain) == text:
        return SPECIAL.sub(r"\\\1", catalogue.translate(plain))
    with_bars = text.replace("\\|", "|")
    made = catalogue.translate(with_bars)
    return made if with_bars == text else made.replace("|", "\\|")


def made_of(edition: Edition, english: str) -> str:
    """What the Chinese page of one of MADE must be."""
    return made_page(edition, english, (edition.root / english).read_text(encoding="utf-8"))


def write_made(edition: Edition) -> list[str]:
    """Write the Chinese pages of MADE; returns those that changed."""
    changed = []
    for english in MADE:
        path = edition.root / "docs/zh" / posixpath.basename(english)
        if not path.exists() or path.read_text(encoding="utf-8") != made_of(edition, english):
            path.write_text(made_of(edition, english), encoding="utf-8")
            changed.append(path.relative_to(edition.root).as_posix())
    return changed


# ------------------------------------------------------------------------------------------------------------------- comparing


def code_spans(text: str) -> Counter[str]:
    """The code of a Markdown text."""
    return Counter(" ".join(each[2].split()) for each in CODE.finditer(text))


def links(text: str) -> Counter[str]:
    """The targets of the links of a Markdown text."""
    found: list[str] = []
    with_links(emptied(text), lambda target, anchor: found.append(target + anchor) or "")  # type: ignore[func-returns-value]
    return Counter(found)


def prose(text: str) -> str:
    """A Markdown text without code, targets of links and comments."""
    return re.sub(r"<!--.*?-->", " ", LINK.sub("", CODE.sub(" ", emptied(text))), flags=re.DOTALL)


def numbers(text: str) -> Counter[float]:
    """The numbers of a Markdown text outside of code; "135 million" and "1.35 亿" are the same one."""
    rest = RANGE_WITH_UNIT.sub(r"\1 \4 \2 \3 \4", prose(text))
    with_unit = [float(round(float(number.replace(",", "")) * UNITS[unit])) for number, unit in WITH_UNIT.findall(rest)]
    return Counter([*with_unit, *(float(number.replace(",", "")) for number in NUMBER.findall(WITH_UNIT.sub(" ", rest)))])


def differences(english: str, chinese: str, expected_links: Counter[str]) -> Iterator[str]:
    """What a translated cell lacks of code, numbers and links, and what it has that the English one has not.

    It may repeat code and numbers, and write numbers as words or as digits. expected_links: those of the English cell, as the
    Chinese page needs them.
    """
    spans, own_spans = code_spans(english), code_spans(chinese)
    words = re.findall(r"[a-z]+", prose(english).lower())
    counted, own_counted = numbers(english), numbers(chinese)
    in_words = {float(WORDS[word]) for word in words if word in WORDS}
    in_numerals = {number for number, numeral in NUMERALS.items() if numeral in chinese or (number == 2 and "两" in chinese)}
    for what, lacks, more in (
        ("code", spans - own_spans, own_spans.keys() - spans.keys()),
        ("numbers", (counted - own_counted).keys() - in_numerals, own_counted.keys() - counted.keys() - in_words),
        ("links", expected_links - links(chinese), links(chinese) - expected_links),
    ):
        if lacks or more:
            yield f"{what}: lacks {format_things(lacks)}, has in addition {format_things(more)}"


def format_things(things: Iterable[str | float]) -> str:
    """Spans, links or numbers as a list."""
    return ", ".join(f"{thing:g}" if isinstance(thing, float) else repr(thing) for thing in things) or "nothing"


def frame_differences(english: nbformat.NotebookNode, chinese: nbformat.NotebookNode) -> Iterator[str]:
    """Where cells, code, tags or metadata of a Chinese notebook are not those of the English one."""
    before, after = [cell.id for cell in english.cells], [cell.id for cell in chinese.cells]
    if before != after:
        yield f"its cells are {after}, the English ones {before}"
        return
    for cell, own in zip(english.cells, chinese.cells, strict=True):
        if cell.cell_type != own.cell_type or (cell.cell_type == "code" and cell.source != own.source):
            yield f"cell {cell.id}: its code differs"
        if cell.metadata != own.metadata:
            yield f"cell {cell.id}: its metadata differ: {dict(own.metadata)}, in English {dict(cell.metadata)}"
    own_keys = {"title", "language"}
    metadata = [
        {
            **notebook.metadata,
            "xpulab": {key: value for key, value in notebook.metadata["xpulab"].items() if key not in own_keys},
        }
        for notebook in (english, chinese)
    ]
    if metadata[0] != metadata[1] or chinese.metadata["xpulab"].get("language") != "zh":
        yield "its metadata differ from the English ones, or its language is not zh"


def wrong(edition: Edition, name: str) -> list[str]:
    """What a Chinese notebook must have as the English one has it, and has not."""
    english, page, own_page = edition.english[name], f"notebooks/{name}.ipynb", f"notebooks/zh/{name}.ipynb"
    chinese = nbformat.read(edition.root / own_page, as_version=4)
    found = list(frame_differences(english, chinese))
    own = {cell.id: cell for cell in markdown(chinese)}
    for cell in markdown(english):
        translated = edition.texts.get(name, {}).get(cell.id)
        if translated is None or translated.of != digest(cell.source) or cell.id not in own:
            continue
        expected = Counter(
            edition.link(target, f"{sign}{anchor}", page, own_page)
            for target, sign, anchor in (link.partition("#") for link in links(cell.source).elements())
        )
        found += [f"cell {cell.id}: {text}" for text in differences(cell.source, own[cell.id].source, expected)]
    return [f"{own_page}: {text}" for text in found]


def unfinished(edition: Edition) -> list[str]:
    """What a translator still has to do: missing, untranslated and stale cells and pages, notebooks to be written."""
    found = []
    for name, english in edition.english.items():
        cells, path = edition.texts.get(name, {}), f"notebooks/zh/text/{name}.md"
        for cell in markdown(english):
            if cell.id not in cells:
                found.append(f"{path}: cell {cell.id} is missing: translate.py new {name[:2]}")
            elif is_untranslated(cells[cell.id].text):
                found.append(f"{path} line {cells[cell.id].line}: cell {cell.id} is not translated")
            elif cells[cell.id].of != digest(cell.source):
                found.append(f"{path} line {cells[cell.id].line}: cell {cell.id} is stale: its English text changed")
        for gone in cells.keys() - {cell.id for cell in markdown(english)}:
            found.append(f"{path} line {cells[gone].line}: cell {gone} is not in the English notebook any more")
        found += stale_notebook(edition, name)
    for english_page, page in pages(edition).items():
        text = (edition.root / page).read_text(encoding="utf-8")
        if english_page in MADE:
            if text != made_of(edition, english_page):
                found.append(f"{page}: is not what {english_page} and the catalogue of messages make: translate.py made")
            continue
        header = PAGE.match(text)
        if not header or header[1] != english_page:
            found.append(
                f"{page} line 1: does not begin with `<!-- of {english_page} {page_digest(edition, english_page)} -->`"
            )
        elif header[2] != page_digest(edition, english_page):
            found.append(f"{page} line 1: is stale: {english_page} changed")
        before, after = (len(headings(t)) for t in ((edition.root / english_page).read_text(encoding="utf-8"), text))
        if before != after:
            found.append(f"{page}: has {after} headings, {english_page} has {before}: links to its headings lead to its top")
    return found


def stale_notebook(edition: Edition, name: str) -> list[str]:
    """Whether the Chinese notebook of a chapter is not what `write` makes of its files."""
    path = edition.root / f"notebooks/zh/{name}.ipynb"
    if name not in edition.chapters:
        return []
    paths = sorted({*path.parent.glob("*.ipynb"), path})
    try:
        is_written = path.exists() and nbformat.writes(arranged(made(edition, name), path, paths)) + "\n" == path.read_text(
            "utf-8"
        )
    except InputError as error:
        return [str(error)]
    return [] if is_written else [f"notebooks/zh/{name}.ipynb: is not what its files make: translate.py write {name[:2]}"]


def is_untranslated(text: str) -> bool:
    """Whether a text has English words and no Chinese ones."""
    return not CHINESE.search(text) and re.search(r"[A-Za-z]{3,}", prose(text)) is not None


def check(edition: Edition) -> int:
    """Print what is unfinished, then what is wrong; returns the exit code."""
    todo = unfinished(edition)
    found = [
        text
        for name in edition.english
        if (edition.root / f"notebooks/zh/{name}.ipynb").exists()
        for text in wrong(edition, name)
    ]
    for text in [*todo, *(f"WRONG: {text}" for text in found)]:
        print(text)
    print(f"{len(edition.chapters)} chapters, {len(pages(edition))} pages; {len(todo)} to do, {len(found)} wrong")
    return 1 if found else 0


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
        if command == "check" and not given:
            return check(edition)
        if command == "links" and not given:
            print("\n".join(lead_links(edition)) or "nothing to change")
        elif command == "made" and not given:
            print("\n".join(write_made(edition)) or "nothing to change")
        elif command == "write":
            names = [chapter(edition, each) for each in given] or edition.chapters
            if left := [name for name in names if name not in edition.chapters]:
                raise InputError(f"{edition.text_file(left[0])}: its first cell is not translated yet")
            print("\n".join(f"notebooks/zh/{name}.ipynb" for name in write(edition, names)) or "nothing to change")
        elif command == "new" and given:
            for name in [chapter(edition, each) for each in given]:
                print(f"{name}: added {', '.join(add_missing(edition, name)) or 'nothing'}")
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
