"""docs/operators.md names checks that exist, and the ones that the tool's table has."""

from __future__ import annotations

import importlib.util
import json

import pytest

from xpulab import files

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def census():
    path = files.ROOT / "tools" / "operator_census.py"
    spec = importlib.util.spec_from_file_location("operator_census", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_table(census):
    assert not list(census.stale(census.PAGE.read_text(encoding="utf-8")))


def test_the_table_names_checks_of_the_notebooks(census):
    cells = [
        "".join(cell["source"])
        for path in files.NOTEBOOKS.glob("*.ipynb")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
    ]
    source = "\n".join(cells)
    named = {name for names in census.COVERED.values() for name in names.split(", ")}
    assert sorted(name for name in named if f'"{name}"' not in source) == []
