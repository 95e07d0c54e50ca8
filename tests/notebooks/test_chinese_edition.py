"""The Chinese edition: code, tags, metadata, numbers and links are those of the English notebooks; what is stale is listed."""

from __future__ import annotations

import importlib
import re

import nbformat
import pytest
from nbformat import v4

from xpulab.files import NOTEBOOKS, ROOT

CHINESE = sorted((NOTEBOOKS / "zh").glob("*.ipynb"))


@pytest.fixture
def translate(monkeypatch):
    """tools/translate.py as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("translate")


@pytest.fixture
def lint(monkeypatch):
    """tools/lint_project.py as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("lint_project")


def test_there_are_chinese_chapters():
    assert CHINESE


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: path.stem)
def test_a_chapter_has_the_code_tags_metadata_numbers_and_links_of_the_english_one(translate, path):
    assert translate.wrong(translate.Edition(), path.stem) == []


def test_the_links_of_chinese_pages_lead_somewhere(lint):
    pages = [ROOT / "README_cn.md", *sorted(ROOT.glob("docs/zh/*.md"))]
    assert [finding for path in pages if path.exists() for finding in lint.links(path)] == []


# --------------------------------------------------------------------------------------------- a small book in both languages

TITLE = "# Cards: two of them\n\n<!-- contents -->\n<!-- /contents -->"
WORK = "## Do it now\n\nTake `a.b` 3 times, as [there](02_next.ipynb#Go-on) and in [words](../docs/words.md#a-word)."
VERDICT = "## Verdict\n\n<!-- next -->\n<!-- /next -->"
TRANSLATED = {
    "t": "# 卡：两张\n\n<!-- contents -->\n<!-- /contents -->",
    "w": "## 动手\n\n用 `a.b` 3 次，如[那里](02_next.ipynb#Go-on)和[词语](../docs/words.md#a-word)。",
    "v": "## 结论\n\n<!-- next -->\n<!-- /next -->",
}
SECTION = {"xpulab": {"section": "work", "needs": [], "part": "lesson", "level": "quick"}}
PICTURE = v4.new_output("display_data", {"image/png": "eA==", "text/plain": "<Figure 1 Axes>"})


def notebook(title, work):
    cells = [
        v4.new_markdown_cell(TITLE, id="t"),
        v4.new_markdown_cell(work, id="w", metadata=SECTION),
        v4.new_code_cell("print(3)", id="c", metadata={"tags": ["x"]}, outputs=[PICTURE], execution_count=1),
        v4.new_markdown_cell(VERDICT, id="v"),
    ]
    return v4.new_notebook(cells=cells, metadata={"xpulab": {"title": title}})


class Book:
    """A folder with two chapters, their translations and two pages."""

    def __init__(self, translate, root):
        self.translate, self.root = translate, root
        for folder in ("notebooks/zh/text", "docs/zh"):
            (root / folder).mkdir(parents=True)
        self.english = {"01_first": notebook("Cards", WORK), "02_next": notebook("Cards: two of them", "## Go on\n\nAnd on.")}
        self.translated = {"01_first": dict(TRANSLATED), "02_next": {**TRANSLATED, "w": "## 继续\n\n再继续。"}}
        self.file("docs/words.md", "# Words\n\n## A word\n\nOne.\n")
        self.file("docs/zh/words.md", "# 词语\n\n## 词\n\n一个。\n")
        self.save()

    def file(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")

    def save(self):
        """Write notebooks and translations, whose hashes are those of the English text of now."""
        for name, english in self.english.items():
            nbformat.write(english, self.root / f"notebooks/{name}.ipynb")
            hashes = {cell.id: self.translate.digest(cell.source) for cell in english.cells}
            texts = [f"<!-- cell {cell} {hashes[cell]} -->\n{text}\n" for cell, text in self.translated[name].items()]
            self.file(f"notebooks/zh/text/{name}.md", "\n".join(texts))

    def save_english(self):
        for name, english in self.english.items():
            nbformat.write(english, self.root / f"notebooks/{name}.ipynb")

    @property
    def edition(self):
        return self.translate.Edition(self.root)

    def command(self, *arguments):
        return self.translate.main(list(arguments), self.edition)

    def chinese(self, name="01_first"):
        return nbformat.read(self.root / f"notebooks/zh/{name}.ipynb", as_version=4)

    def text(self, cell, name="01_first"):
        return next(each.source for each in self.chinese(name).cells if each.id == cell)


@pytest.fixture
def book(translate, tmp_path):
    made = Book(translate, tmp_path)
    assert made.command("write") == 0
    return made


def test_links_lead_to_the_chinese_pages_and_to_the_heading_at_the_same_place(book):
    assert "(02_next.ipynb#继续)" in book.text("w") and "(../../docs/zh/words.md#词)" in book.text("w")
    assert "- [动手](#动手)" in book.text("t") and "下一章：[02 卡：两张](02_next.ipynb)" in book.text("v")


def test_a_link_to_what_is_not_translated_leads_to_the_english_page(book):
    (book.root / "docs/zh/words.md").unlink()
    book.translated["02_next"]["t"] = TITLE
    book.save()
    assert book.command("write") == 0
    assert "(../02_next.ipynb#Go-on)" in book.text("w") and "(../../docs/words.md#a-word)" in book.text("w")
    assert not (book.root / "notebooks/zh/02_next.ipynb").exists()


def test_the_title_is_the_beginning_of_the_heading_where_the_english_one_is(book):
    titles = [book.chinese(name).metadata["xpulab"]["title"] for name in book.english]
    assert titles == ["卡", "卡：两张"]


def test_what_is_written_is_complete_and_written_twice_the_same(book, capsys):
    assert book.command("accept", "words.md") == 0
    assert book.command("write") == 0
    assert "nothing to change" in capsys.readouterr().out
    assert book.command("check") == 0
    assert "0 to do, 0 wrong" in capsys.readouterr().out


def test_an_english_cell_that_changed_is_listed_and_its_translation_stays_until_it_is_accepted(book, capsys):
    book.english["01_first"].cells[1].source = WORK.replace("3 times", "4 times")
    book.save_english()
    assert book.command("write") == 0 and "3 次" in book.text("w")
    assert book.command("check") == 0
    assert "01_first.md line 7: cell w is stale" in capsys.readouterr().out
    assert book.command("accept", "01", "w") == 0
    assert book.command("check") == 1
    assert "cell w: numbers: lacks 4, has in addition 3" in capsys.readouterr().out


def test_a_missing_cell_is_shown_in_english_and_listed_and_can_be_added_in_its_place(book, capsys):
    del book.translated["01_first"]["w"]
    book.save()
    assert book.command("write") == 0 and "Take `a.b`" in book.text("w")
    assert book.command("check") == 0 and "cell w is missing" in capsys.readouterr().out
    assert book.command("new", "01") == 0
    assert list(book.edition.texts["01_first"]) == ["t", "w", "v"]
    assert book.command("check") == 0 and "cell w is not translated" in capsys.readouterr().out


CHANGES = {
    "code": lambda cells: cells[2].update(source="print(4)"),
    "tags": lambda cells: cells[2].metadata.update(tags=[]),
    "a section": lambda cells: cells[1].metadata["xpulab"].update(level="smoke"),
    "a cell": lambda cells: cells.pop(2),
    "a number": lambda cells: cells[1].update(source=cells[1].source.replace("3", "5")),
    "a code span": lambda cells: cells[1].update(source=cells[1].source.replace("a.b", "a.c")),
    "a link": lambda cells: cells[1].update(source=cells[1].source.replace("#词", "#x")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_chinese_notebook_that_differs_in_what_is_not_text_is_wrong(book, what):
    changed = book.chinese()
    CHANGES[what](changed.cells)
    nbformat.write(changed, book.root / "notebooks/zh/01_first.ipynb")
    assert len(book.translate.wrong(book.edition, "01_first")) == 1
    assert book.command("check") == 1


def test_metadata_of_the_notebook_that_differ_are_wrong(book):
    changed = book.chinese()
    changed.metadata["xpulab"]["cards"] = 7
    nbformat.write(changed, book.root / "notebooks/zh/01_first.ipynb")
    assert book.command("check") == 1


@pytest.mark.parametrize(
    ("english", "chinese", "wrong"),
    [
        ("135 million weights", "1.35 亿个权重", False),
        ("1 to 70\nbillion parameters", "10 亿到 700 亿参数", False),
        ("8 cards, 1 percent", "八张卡，百分之一", False),
        ("two cards", "2 张卡", False),
        ("1,000 rows", "1,000 行", False),
        ("1,000 rows", "1,001 行", True),
        ("135 million weights", "135 亿个权重", True),
        ("37 cards", "许多卡", True),
    ],
)
def test_numbers_are_compared_as_values(translate, english, chinese, wrong):
    assert bool(list(translate.differences(english, chinese, translate.links(english)))) == wrong


def test_an_output_is_kept_while_its_code_and_the_numbers_of_the_english_output_are_the_same(book):
    own = book.chinese()
    own.cells[2].outputs[0].data["image/png"] = "eQ=="
    nbformat.write(own, book.root / "notebooks/zh/01_first.ipynb")
    assert book.command("write") == 0
    assert book.chinese().cells[2].outputs[0].data["image/png"] == "eQ=="
    book.english["01_first"].cells[2].outputs[0].data["text/plain"] = "<Figure 2 Axes>"
    book.save_english()
    assert book.command("write") == 0
    assert book.chinese().cells[2].outputs[0].data["image/png"] == "eA=="


LINKS = {
    "words.md#a-word": "words.md#词",
    "../notebooks/01_first.ipynb#Do-it-now": "../../notebooks/zh/01_first.ipynb#动手",
    "#top": "#顶",
    "../data": "../../data",
    "other.md#there": "../other.md#there",
    "../page.md": "../page.md",
}
"""Links of a translated page: as the English page has them, or to the English page itself, and as they must become."""


def test_links_of_a_page_are_led_to_chinese_pages_and_a_second_time_nothing_changes(book, capsys):
    (book.root / "data").mkdir()
    book.file("docs/page.md", "# Top\n")
    book.file("docs/other.md", "# There\n")
    book.file("docs/zh/page.md", "# 顶\n`[code](words.md#a-word)`\n" + "".join(f"[a]({link})\n" for link in LINKS))
    assert book.command("links") == 0
    expected = "# 顶\n`[code](words.md#a-word)`\n" + "".join(f"[a]({link})\n" for link in LINKS.values())
    assert (book.root / "docs/zh/page.md").read_text(encoding="utf-8") == expected
    capsys.readouterr()
    assert book.command("links") == 0
    assert capsys.readouterr().out == "nothing to change\n"


def test_a_page_is_stale_until_it_is_accepted(book, capsys):
    assert book.command("check") == 0
    assert "docs/zh/words.md line 1: does not begin with" in capsys.readouterr().out
    assert book.command("accept", "words.md") == 0
    book.file("docs/words.md", "# Words\n\n## A word\n\nTwo.\n")
    assert book.command("check") == 0
    assert "docs/zh/words.md line 1: is stale" in capsys.readouterr().out


MADE = """# Capabilities

[Capabilities](capabilities.md) says what each one is.
See [there](words.md#a-word) and [above](#capabilities).

    red

- red
- [2, 0] is kept, so is a | b

| axis | cause | lane |
|---|---|---|
| state | [2, 0] | red |
| red | gather(axis=1) gives every row the last row's gradient | a \\| b |
| red | \\[2, 0\\] @ \\[0, 3\\] is garbage | **red** a.b |
"""
"""A page of a tool, whose words are in the catalogue of messages; the column of axes is one of names."""


def test_a_page_of_a_tool_is_translated_by_lines_and_cells_and_names_and_code_stay(book, translate):
    book.file("docs/faults.md", MADE)
    header, *lines = translate.made_of(book.edition, "docs/faults.md").splitlines()
    assert header == f"<!-- of docs/faults.md {translate.page_digest(book.edition, 'docs/faults.md')} -->"
    assert lines == [
        "# 能力",
        "",
        "每项能力是什么，见[能力](../capabilities.md)。",
        "See [there](words.md#词) and [above](#能力).",
        "",
        "    red",
        "",
        "- 红色",
        "- [2, 0] is kept, so is a | b",
        "",
        "| 轴 | 原因 | 测试设备 |",
        "|---|---|---|",
        "| state | [2, 0] | 红色 |",
        "| red | gather(axis=1) 给每一行的都是最后一行的梯度 | a \\| b |",
        "| red | \\[2, 0\\] @ \\[0, 3\\] is garbage | **红色** a.b |",
    ]


def test_a_page_of_a_tool_that_is_not_made_of_its_english_page_is_listed_until_it_is(book, translate, capsys):
    for page in translate.MADE:
        book.file(page, MADE)
    assert book.command("made") == 0
    assert capsys.readouterr().out.split() == [page.replace("docs/", "docs/zh/") for page in translate.MADE]
    book.file("docs/grids.md", MADE.replace("state", "mode"))
    assert book.command("check") == 0
    assert "docs/zh/grids.md: is not what docs/grids.md and the catalogue of messages make" in capsys.readouterr().out
    assert book.command("made") == 0
    assert capsys.readouterr().out == "docs/zh/grids.md\n"
    assert book.command("made") == 0
    assert capsys.readouterr().out == "nothing to change\n"


@pytest.mark.parametrize("name", ["faults.md", "grids.md", "releases.md"])
def test_a_committed_page_of_a_tool_is_made_of_the_english_page(translate, name):
    assert (ROOT / "docs/zh" / name).read_text(encoding="utf-8") == translate.made_of(translate.Edition(), f"docs/{name}")


@pytest.mark.parametrize("name", ["faults.md", "grids.md"])
def test_each_sentence_of_a_committed_page_of_a_tool_is_chinese(translate, name):
    lines = (ROOT / "docs/zh" / name).read_text(encoding="utf-8").splitlines()[1:]
    prose = [line for line in lines if re.match(r"[^|#\s]", line)]
    prose += [cell for line in lines if line.startswith("| ") for cell in translate.cells_of(line) if cell.endswith(".")]
    assert [line for line in prose if not translate.CHINESE.search(line)] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stray\n", "01_first.md line 1: text above"),
        ("<!-- cell t 0 -->\n# 卡\n\n<!-- cell t 0 -->\n# 卡\n", "01_first.md line 4: cell t is there in line 1 too"),
        ("<!-- cell t {t} -->\n## 卡\n## 张\n", "01_first.md line 1: cell t has 2 headings, the English one 1"),
    ],
)
def test_a_file_of_translations_that_does_not_fit_is_refused_with_its_line(book, capsys, text, says):
    book.file("notebooks/zh/text/01_first.md", text.replace("{t}", book.translate.digest(TITLE)))
    assert book.command("write") == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [(), ("write", "77"), ("accept", "01", "nowhere"), ("accept", "gone.md"), ("check", "01")]
)
def test_arguments_that_do_not_fit_are_refused(book, arguments):
    assert book.command(*arguments) == 2
