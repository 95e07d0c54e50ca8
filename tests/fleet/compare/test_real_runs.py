"""Real runs of one chapter: twice on the CPU, once on simulated cards."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from xpulab import files

pytestmark = pytest.mark.notebooks

COMMAND = [sys.executable, "-m", "xpulab"]
CHAPTER = "00_environment"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs on the CPU and one on simulated cards, at level smoke."""
    folder = tmp_path_factory.mktemp("runs")
    for name, device in (("first", "cpu"), ("second", "cpu"), ("simulated", "sim")):
        options = ["--device", device, "--cards", "2", "--level", "smoke", "--jobs", "1", "--out", folder / name]
        done = subprocess.run([*COMMAND, "run", CHAPTER, *options], cwd=files.ROOT, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def compare(*arguments):
    """Exit code and JSON of a comparison."""
    done = subprocess.run([*COMMAND, "compare", *arguments, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_two_runs_of_one_machine_have_the_same_values(runs):
    code, comparison = compare(runs / "first", runs / "second")
    assert (code, comparison["kind"], comparison["findings"]) == (0, "two runs", [])


def test_the_cpu_and_simulated_cards_agree_and_what_only_one_compares_is_named(runs):
    code, comparison = compare(runs / "first", runs / "simulated")
    assert (code, comparison["findings"]) == (0, [])
    (one_only,) = [note for note in comparison["notes"] if note.startswith("compared on one device only")]
    assert "hardware.cards" in one_only


def test_bundles_of_real_runs_are_compared_like_their_folders(runs, pack):
    bundles = [pack(name, json.loads((runs / name / "result.json").read_text())) for name in ("first", "second")]
    code, comparison = compare(*bundles)
    assert (code, len(comparison["runs"]), comparison["findings"]) == (0, 2, [])
