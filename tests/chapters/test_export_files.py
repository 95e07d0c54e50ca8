"""A file that is no program is refused, and every damage changes a file."""

from __future__ import annotations

import pytest

from xpulab import files
from xpulab.chapters.export import export_files

PATH = files.DATA / "programs" / "3.3.1" / "loop"


def test_another_json_file_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="is no program"):
        export_files.read(tmp_path / "x")
