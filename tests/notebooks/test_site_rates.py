"""Rates at level smoke beside a site's own file, as an operator runs it: on simulated cards, and on a CPU without a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SHEET = """\
- card: the cards of a test
  models: [simulated]
  tflops: {{float32: {tflops}}}
  card_to_card_gb_per_s: {gb_per_s}
  least: 0.7
  source: a test, 2026-11-28
"""
REACHED = SHEET.format(tflops=0.01, gb_per_s=0.01).replace("least: 0.7", "least: 0.001")
OUT_OF_REACH = SHEET.format(tflops=1e6, gb_per_s=1e6)
CHECKS = ("bandwidth.data-sheet", "collectives.link")


@pytest.fixture
def smoke(tmp_path):
    """smoke(device, sheet) runs both checks at level smoke where the site has this file; returns exit code, stderr, checks."""

    def run(device, sheet):
        (tmp_path / "site.yaml").write_text(sheet)
        command = [sys.executable, "-m", "xpulab", "run", "--device", device, "--level", "smoke", "--out", "out"]
        command += [word for name in CHECKS for word in ("--check", name)]
        variables = {**os.environ, "XPULAB_HARDWARE": str(tmp_path / "site.yaml")}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
        result = tmp_path / "out" / "result.json"
        notebooks = json.loads(result.read_text())["notebooks"] if result.exists() else []
        return done.returncode, done.stderr, {each["name"]: each for book in notebooks for each in book["checks"]}

    return run


def test_cards_that_reach_the_numbers_of_the_site_are_green(smoke):
    code, _, checks = smoke("sim", REACHED)
    assert (code, {name: checks[name]["outcome"] for name in CHECKS}) == (0, dict.fromkeys(CHECKS, "passed"))


def test_cards_far_below_the_numbers_of_the_site_are_red_and_each_is_named(smoke):
    code, _, checks = smoke("sim", OUT_OF_REACH)
    assert (code, {name: checks[name]["outcome"] for name in CHECKS}) == (1, dict.fromkeys(CHECKS, "failed"))
    red = [row["case"] for name in CHECKS for row in checks[name]["rows"] if row["outcome"] == "failed"]
    assert red == [*(f"sim:{card}, product, float32, TFLOP/s" for card in (0, 1)), "all_reduce of two cards, GB/s"]


def test_a_cpu_has_no_model_and_is_green_however_slow(smoke):
    code, _, checks = smoke("cpu", OUT_OF_REACH)
    assert (code, {name: checks[name]["outcome"] for name in CHECKS}) == (
        0,
        dict(zip(CHECKS, ("passed", "skipped"), strict=True)),
    )


def test_a_file_that_is_wrong_is_named_with_its_line_before_anything_runs(smoke):
    code, said, checks = smoke("cpu", OUT_OF_REACH.replace("least: 0.7", "least: 70"))
    assert (code, checks) == (2, {}) and "site.yaml line 5" in said and "Traceback" not in said
