"""A reader never sees half a file."""

from __future__ import annotations

import nbformat
import pytest
from nbformat import v4

from xpulab.harness.written import replace_notebook, replace_text


def test_a_text_replaces_the_one_before_which_stays_when_it_cannot_be_written(tmp_path):
    path = tmp_path / "result.json"
    replace_text(path, "old")
    replace_text(path, "new: ä")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UnicodeEncodeError):
        replace_text(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "new: ä"


def test_a_reader_that_has_the_file_open_keeps_what_it_reads(tmp_path):
    path = tmp_path / "a.ipynb"
    replace_notebook(path, v4.new_notebook(cells=[v4.new_code_cell("1")]))
    with path.open() as reader:
        replace_notebook(path, v4.new_notebook())
        assert len(nbformat.read(reader, as_version=4).cells) == 1
    assert list(tmp_path.iterdir()) == [path]
