"""Simulated cards that do not repeat themselves: the check that says so is red, and no other check of two runs."""

from __future__ import annotations

import pytest

from xpulab.records.record import RED

pytestmark = pytest.mark.notebooks

SECONDS = 900
CHAPTERS = ("02_sft", "05_memory", "06_checkpoints", "17_numerics")
"""Those that compare two trainings to the bit, and 17, which tries whether the device repeats itself. Not 07: what it finds of
damaged files are digests of a step after loading, which have no bound."""


@pytest.mark.timeout(SECONDS)
def test_only_determinism_is_red(book_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_FAULTS", "reorder launch kind=embedding_grad")
    checks = book_run("sim", tmp_path / "out", *CHAPTERS).checks
    assert {name for name, check in checks.items() if check["outcome"] in RED} == {"determinism.step"}
    within = {name for name, check in checks.items() if "does not repeat itself" in str(check)}
    assert {"sft.repeat-weights", "recompute.gradients", "resume.exact"} <= within
