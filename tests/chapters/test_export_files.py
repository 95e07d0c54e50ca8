"""A file that is no program is refused."""

from __future__ import annotations

import pytest

from xpulab.chapters.export import export_files


def test_another_json_file_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="is no program"):
        export_files.read(tmp_path / "x")
