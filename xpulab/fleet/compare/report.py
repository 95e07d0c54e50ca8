"""Writes a comparison: compare.json for programs, compare.html for people."""

from __future__ import annotations

import json
from pathlib import Path

from xpulab.errors import InputError
from xpulab.fleet.compare.comparison import Comparison, to_json
from xpulab.fleet.compare.page import to_html


def write(comparison: Comparison, folder: Path) -> Path:
    """Write both into a folder, which is made; returns the path of the page. Raises InputError when that is not possible."""
    page = folder / "compare.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(to_json(comparison), indent=2, allow_nan=False) + "\n"
        (folder / "compare.json").write_text(content, encoding="utf-8")
        page.write_text(to_html(comparison), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error
    return page
