"""With no tool of ours in the way: papermill, nbconvert, nbmake and nbval pass a green notebook and fail a red one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import make, save

pytestmark = pytest.mark.notebooks

PLAIN = ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir=."]
TOOLS = {
    "papermill": ["papermill", "--no-progress-bar", "notebook.ipynb", "out.ipynb"],
    "nbconvert": ["nbconvert", "--to", "notebook", "--execute", "notebook.ipynb", "--output", "out.ipynb"],
    "nbmake": ["pytest", *PLAIN, "--nbmake", "notebook.ipynb"],
    "nbval": ["pytest", *PLAIN, "--nbval", "notebook.ipynb"],
}
GOOD = 'check.equal("demo.good", 2, 2, control=3)'


def exit_code(tool, cells, folder):
    save(make(*cells), folder / "notebook.ipynb")
    command = [sys.executable, "-m", *TOOLS[tool]]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=100).returncode


@pytest.mark.parametrize("tool", TOOLS)
def test_a_green_notebook_passes(tool, tmp_path):
    assert exit_code(tool, [GOOD], tmp_path) == 0


@pytest.mark.parametrize("tool", TOOLS)
def test_a_failed_check_fails_it(tool, tmp_path):
    assert exit_code(tool, [GOOD, 'check.equal("demo.bad", 1, 2, control=3)'], tmp_path) != 0


@pytest.mark.parametrize("tool", TOOLS)
def test_a_check_that_a_branch_goes_round_fails_it(tool, tmp_path):
    assert exit_code(tool, [GOOD, f"if False:\n    {GOOD.replace('good', 'missed')}"], tmp_path) != 0
