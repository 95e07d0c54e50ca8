"""The Chinese edition: cells, code, tags and links are those of the English notebooks; what is stale is listed."""

from __future__ import annotations

import importlib

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


def test_each_chapter_is_there():
    assert [path.name for path in CHINESE] == sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: path.stem)
def test_a_chapter_has_the_cells_code_and_metadata_of_the_english_one(path):
    english, chinese = (nbformat.read(each, as_version=4) for each in (NOTEBOOKS / path.name, path))
    facts = [
        [(cell.id, cell.cell_type, cell.metadata, cell.source if cell.cell_type == "code" else "") for cell in each.cells]
        for each in (english, chinese)
    ]
    assert facts[0] == facts[1]


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
    """A folder with two chapters, their translations and a page."""

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
        self.save_english()
        for name, english in self.english.items():
            hashes = {cell.id: self.translate.digest(cell.source) for cell in english.cells}
            texts = [f"<!-- cell {cell} {hashes[cell]} -->\n{text}\n" for cell, text in self.translated[name].items()]
            self.file(f"notebooks/zh/text/{name}.md", "\n".join(texts))

    def save_english(self):
        for name, english in self.english.items():
            nbformat.write(english, self.root / f"notebooks/{name}.ipynb")

    def command(self, *arguments):
        return self.translate.main(list(arguments), self.translate.Edition(self.root))

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
    assert [book.chinese(name).metadata["xpulab"]["title"] for name in book.english] == ["卡", "卡：两张"]


def test_an_english_cell_that_changed_is_listed_until_its_translation_is_accepted(book, capsys):
    book.english["01_first"].cells[1].source = WORK.replace("3 times", "4 times")
    book.save_english()
    assert book.command("write") == 0 and "3 次" in book.text("w")
    assert (book.command("check"), book.command("check", "--release")) == (0, 1)
    assert "01_first.md line 7: cell w is new or stale" in capsys.readouterr().out
    assert book.command("accept", "01", "w") == 0
    assert book.command("check", "--release") == 0


def test_a_cell_that_is_new_is_added_in_english_in_its_place_and_listed(book, capsys):
    del book.translated["01_first"]["w"]
    book.save()
    assert book.command("write") == 0 and "Take `a.b`" in book.text("w")
    assert list(book.translate.Edition(book.root).texts["01_first"]) == ["t", "w", "v"]
    assert book.command("check") == 0 and "cell w is new or stale" in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"source": "print(4)"}, {"metadata": {"tags": []}}], ids=str)
def test_a_chinese_notebook_that_differs_in_what_is_not_text_is_wrong_until_it_is_written(book, change):
    changed = book.chinese()
    changed.cells[2].update(change)
    nbformat.write(changed, book.root / "notebooks/zh/01_first.ipynb")
    assert book.command("check") == 1
    assert book.command("write", "01") == 0
    assert book.command("check") == 0


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


def test_a_page_that_is_no_summary_is_stale_until_it_is_accepted(book, capsys):
    assert book.command("check", "--release") == 0  # a summary
    assert book.command("accept", "words.md") == 0
    book.file("docs/words.md", "# Words\n\n## A word\n\nTwo.\n")
    assert book.command("check", "--release") == 1
    assert "docs/zh/words.md line 1: is stale" in capsys.readouterr().out


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


@pytest.mark.parametrize("arguments", [(), ("write", "77"), ("accept", "01", "nowhere"), ("accept", "gone.md"), ("new", "01")])
def test_arguments_that_do_not_fit_are_refused(book, arguments):
    assert book.command(*arguments) == 2
