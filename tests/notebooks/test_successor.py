"""Chapter 19 in its own environment: green as it is committed, and its faults are detected."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from xpulab.files import ROOT

pytestmark = pytest.mark.formers

SECONDS = 2700
"""With making the environment, which downloads 0.9 GB."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The exit code of env/validate.sh 19, and result.json."""
    out = tmp_path_factory.mktemp("successor") / "run"
    command = ["bash", str(ROOT / "env" / "validate.sh"), "19", "--device", "cpu", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment())
    assert (out / "result.json").exists(), done.stdout + done.stderr
    return done.returncode, json.loads((out / "result.json").read_text(encoding="utf-8"))


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.timeout(SECONDS)
def test_it_is_green_with_the_text_that_is_committed(ran):
    code, result = ran
    assert (code, [notebook["outcome"] for notebook in result["notebooks"]]) == (0, ["passed"]), result["notebooks"]


def test_every_check_has_a_control_that_was_rejected(ran):
    (notebook,) = ran[1]["notebooks"]
    assert len(notebook["checks"]) == 13
    assert {check["control"] for check in notebook["checks"]} == {"rejected"}


@pytest.mark.timeout(SECONDS)
def test_its_faults_are_detected(ran):
    xpulab = ROOT / ".venv-formers" / "bin" / "xpulab"
    command = [str(xpulab), "selftest", "--json", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment())
    trials = json.loads(done.stdout)["faults"]
    assert len(trials) > 10 and [trial["fault"] for trial in trials if trial["missed"]] == [], done.stderr
