"""A team of ranks leaves nothing from one call to the next: a chapter measures the same as with new ranks for every call."""

from __future__ import annotations

from pathlib import Path

import pytest

from xpulab.soak.selection import varies

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(2400)]

CHAPTERS = ["05", "09", "10", "11", "12", "13", "14", "15", "18"]
"""Those that run functions on launched ranks."""
OF_FILES = "distributed-checkpoint.damage"
"""Its text has the size of a pickle, which is two bytes shorter where equal names in a process are one object."""


def measured(checks: dict[str, dict]) -> dict[str, tuple]:
    """By check and row the outcome, and by check the digest of all values but of those that time or memory decide."""
    digests = {
        (name, ""): (check["outcome"], check["digest"])
        for name, check in checks.items()
        if name != OF_FILES and not varies(name)
    }
    return digests | {(name, row["case"]): row["outcome"] for name, check in checks.items() for row in check["rows"]}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_measures_the_same_with_teams_and_with_new_ranks_for_every_call(chapter, tmp_path, monkeypatch, book_run):
    rehearsed = (chapter, "--as", "xpu", "--time-limit", "100")
    of_teams = measured(book_run("sim", tmp_path / "teams", *rehearsed).checks)
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "fresh.py").symlink_to(Path(__file__).with_name("every_call_fresh.py"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    of_new = measured(book_run("sim", tmp_path / "new", *rehearsed).checks)
    assert Path(tmp_path, "ipython", "calls").exists()
    assert of_teams == of_new
