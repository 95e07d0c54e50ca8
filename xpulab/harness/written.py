"""Files that are replaced as a whole: whoever reads one, whenever the writer is killed, finds the old text or the new one."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbformat import NotebookNode


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text file; it is on the disk when this returns. errors: as of open(), for characters that UTF-8 cannot hold."""
    new = path.with_name(f".{path.name}.new")  # always the same name: what a killed writer leaves is overwritten
    with new.open("w", encoding="utf-8", errors=errors) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def replace_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook, as replace_text does."""
    replace_text(path, nbformat.writes(notebook) + "\n")
