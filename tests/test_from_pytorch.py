"""docs/from-pytorch.md: its first table is the one that chapter 00 executes, and every name of Paddle in it is there."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import re

import nbformat
import pytest

from xpulab import files

PAGE = (files.ROOT / "docs" / "from-pytorch.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `.*\|$", PAGE, re.MULTILINE)
NAMES = sorted(
    {name for row in ROWS for name in re.findall(r"\b(?:paddle|paddlenlp|dist)(?:\.[a-zA-Z]\w*)+", row.split("|")[2])}
)


def test_the_first_table_is_that_of_chapter_00():
    texts = [cell.source for cell in nbformat.read(files.NOTEBOOKS / "00_environment.ipynb", as_version=4).cells]
    (lesson,) = [text for text in texts if text.startswith("## From PyTorch to Paddle")]
    shown = re.findall(r"^\| `.*\|$", lesson, re.MULTILINE)
    assert shown and shown == ROWS[: len(shown)]


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_right_column_is_there(name):
    full = re.sub(r"^dist\.", "paddle.distributed.", name)
    if full == "paddle.distributed.launch":
        assert importlib.util.find_spec(full)
    else:
        package = importlib.import_module(".".join(full.split(".")[:2]) if full.startswith("paddlenlp") else "paddle")
        assert callable(operator.attrgetter(full.removeprefix(f"{package.__name__}."))(package))
