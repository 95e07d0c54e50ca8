"""What a soak keeps on disk: a line for each round, and the reports of few rounds, so that the disk does not fill.

    soak.jsonl          a line for each round
    soak.json           the summary for programs; summary.txt for people; junit.xml for CI systems
    rounds/0007/        the reports and notebooks of a round

Kept are the first bad round, the first round of each seed (later ones are compared with it), and the last round.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from xpulab.harness import run as harness
from xpulab.harness.soak.rounds import PASSED, Round, to_json

LINES = "soak.jsonl"


class Log:
    """The folder of a soak."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError when the folder holds another run or soak, or cannot be written."""
        harness.prepare(folder)
        (folder / "notebooks").rmdir()  # each round has its own
        (folder / LINES).touch()
        self.folder = folder
        self.first_bad: int | None = None
        self._seeds: set[int] = set()
        self._last: int | None = None

    def folder_of(self, number: int) -> Path:
        """Where the reports of a round are."""
        return self.folder / "rounds" / f"{number:04d}"

    def prepare(self, number: int) -> Path:
        """Make the folder of a round."""
        harness.prepare(self.folder_of(number))
        return self.folder_of(number)

    def add(self, this: Round) -> None:
        """Write the line of a round to the disk, and remove the reports of the one before unless they are to be kept."""
        with (self.folder / LINES).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(to_json(this), allow_nan=False) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        if self._last is not None:
            shutil.rmtree(self.folder_of(self._last), ignore_errors=True)
        self._last = this.number
        if self.first_bad is None and this.found:
            self.first_bad, self._last = this.number, None
        if this.outcome == PASSED and this.seed not in self._seeds:
            self._seeds.add(this.seed)
            self._last = None

    def write(self, reports: Mapping[str, str]) -> None:
        """Write files beside the lines, each whole or not at all."""
        for name, text in reports.items():
            unfinished = self.folder / f".{name}"
            unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
            unfinished.replace(self.folder / name)

    def kept(self) -> list[str]:
        """The folders of the rounds that are kept, relative to the folder of the soak, in order."""
        return sorted(path.relative_to(self.folder).as_posix() for path in (self.folder / "rounds").glob("*"))
