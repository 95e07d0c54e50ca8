"""Files that are replaced as a whole: whoever reads one, whenever the writer is killed, finds the old text or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import papermill.engines
from nbformat import NotebookNode
from papermill.iorw import LocalHandler, papermill_io


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text file; it is on the disk when this returns. errors: as of open(), for characters that UTF-8 cannot hold."""
    new = _beside(path)
    with new.open("w", encoding="utf-8", errors=errors) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def replace_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook, as replace_text does."""
    replace_text(path, nbformat.writes(notebook) + "\n")


def replace_what_papermill_writes() -> None:
    """From now on papermill, which writes a notebook twice for each of its cells, replaces files below absolute paths.

    Until the notebook has ended, its file is one line of JSON. Papermill itself validates and indents all outputs each time:
    0.2 to 2 s of processor time for a chapter, between its cells.
    """
    papermill_io.register("/", _Replacing())
    papermill.engines.write_ipynb = _write_unfinished


def _write_unfinished(notebook: NotebookNode, path: str) -> None:
    papermill_io.write(json.dumps(notebook, ensure_ascii=False), path)


class _Replacing(LocalHandler):
    def write(self, buf: str, path: str) -> None:
        new = _beside(Path(path))
        super().write(buf, str(new))
        new.replace(path)


def _beside(path: Path) -> Path:
    """Always the same name, so that what a killed writer leaves is overwritten by the next one."""
    return path.with_name(f".{path.name}.new")
