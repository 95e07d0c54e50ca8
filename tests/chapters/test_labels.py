"""The Chinese labels of figures: each belongs to a label that a chapter draws, the font has its characters, figures show it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys

import pytest
from fontTools.ttLib import TTFont

from xpulab import files, messages
from xpulab.chapters.shared import labels

MOST_BYTES = 300_000
SHORTEST = 3
"""Letters that a text of a source must have, for a label to be made from it."""


def texts_of(source):
    """The texts of a Python source, with {} where an f-string has a value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def written():
    """The texts of all chapters, which name what their pictures show, and of the notebooks."""
    paths = (path for path in (files.ROOT / "xpulab/chapters").glob("*/*.py") if path.name != "labels.py")
    sources = [path.read_text(encoding="utf-8") for path in paths]
    for path in files.NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return {text for source in sources for text in texts_of(source)}


def test_each_label_is_one_that_a_chapter_draws(written):
    templates = [text for text in written if "{}" in text and len(re.sub(r"[^a-z]|\{\}", "", text)) >= SHORTEST]
    patterns = [re.compile("(.+)".join(map(re.escape, text.split("{}")))) for text in templates]

    def is_written(text):
        return text in written or text.removeprefix("{}") in written or any(each.fullmatch(text) for each in patterns)

    def is_drawn(label):  # as it is, with its spaces as line breaks, or put together of lines
        lines = [line for line in label.split("\n") if line != "{}"]
        return is_written(label) or is_written(label.replace("\n", " ")) or all(map(is_written, lines))

    assert [label for label in labels.LABELS if not is_drawn(label)] == []


def titles_of(source):
    """The titles and names of axes that a Python source passes on, but those that it computes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg in ("title", "x", "y") and isinstance(node.value, ast.Constant):
            yield node.value.value


def test_each_title_and_axis_of_a_picture_has_a_chinese_label():
    sources = {path: path.read_text(encoding="utf-8") for path in (files.ROOT / "xpulab/chapters").glob("*/pictures.py")}
    titles = [(path.parent.name, title) for path, source in sources.items() for title in titles_of(source)]
    assert len(titles) > 30
    assert [(name, title) for name, title in titles if isinstance(title, str) and labels.chinese(title) == title] == []


def test_a_label_has_as_many_values_in_both_languages():
    assert [label for label, own in labels.LABELS.items() if label.count("{}") != own.count("{}")] == []


def test_the_font_has_all_characters_is_small_and_has_its_licence_beside_it():
    path = files.data(*labels.FONT)
    characters = {ord(character) for label in labels.LABELS.values() for character in label if ord(character) > 0x2E80}
    assert characters <= TTFont(path).getBestCmap().keys(), "run tools/make_font.py"
    assert path.stat().st_size < MOST_BYTES
    assert "SIL OPEN FONT LICENSE" in path.with_name("OFL.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("label", "own"),
    [
        ("loss", "损失"),
        ("rank 3", "进程 3"),
        ("rank 3  (root cause)", "进程 3（根因）"),
        ("sorted: 7 % padding", "排序之后：7 % 是填充"),
        ("rank r = 8", "秩 r = 8"),
        ("paddle.matmul", "paddle.matmul"),
        ("1.5", "1.5"),
    ],
)
def test_values_stay_and_what_the_table_lacks_stays_english(label, own):
    assert labels.chinese(label) == own


DRAW = """
import warnings
warnings.simplefilter("error")
from xpulab.chapters.shared import figures
axes = figures.diagram(4, 2, "What a card holds")
figures.box(axes, 0, 0, 2, 1, "rank 1")
axes.figure.canvas.draw()
print(axes.get_title(loc="left"), axes.texts[0].get_text(), sep="|")
"""


@pytest.mark.parametrize(("asked", "shown"), [("zh", "一张卡持有什么|进程 1"), ("en", "What a card holds|rank 1")])
def test_a_figure_is_drawn_in_the_language_without_a_missing_character(asked, shown):
    environment = {**os.environ, messages.VARIABLE: asked, "MPLBACKEND": "agg", "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", DRAW], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{shown}\n"), done.stderr
