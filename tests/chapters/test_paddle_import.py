"""A cell that uses a name that nothing has defined is recognized, and only such a cell."""

from __future__ import annotations

import ast
import sys

import pytest

from xpulab.chapters.environment.paddle_import import paddle_works, undefined_names

CELLS = {
    "what is missing": ("paddle.ones([2]) @ F.relu(x)", ["F", "paddle"]),
    "what is defined before": ("print(x + 1)", []),
    "what the cell defines": ("import os\nfrom a import b as c\ny = os.sep\nfor z in y: c(z)", []),
    "what Python defines": ("print(len([None, True]), ValueError, __name__)", []),
    "arguments": ("def f(a, *b, c=1, **d):\n    return a, b, c, d", []),
    "names of comprehensions": ("[i for i in x if i]; (lambda q: q)(1)", []),
    "an exception": ("try:\n    x\nexcept ValueError as error:\n    print(error)", []),
    "a default of an argument": ("def f(a=paddle.float32):\n    return a", ["paddle"]),
    "the base of a class": ("class Line(paddle.io.Dataset):\n    pass", ["paddle"]),
}


@pytest.mark.parametrize(("cell", "names"), CELLS.values(), ids=CELLS)
def test_names_that_nothing_defines_are_found(cell, names):
    assert undefined_names(ast.parse(cell), {"x": 1, "__name__": "m"}) == names


def test_paddle_that_is_imported_already_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", object())
    assert paddle_works()
