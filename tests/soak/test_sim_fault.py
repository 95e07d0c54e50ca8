"""A card that inverts bits of its copies only after some rounds is found, although every check of a chapter stays green."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from xpulab.chapters.shared.fault import Fault
from xpulab.faults import inject

pytestmark = pytest.mark.notebooks

COMMAND = [sys.executable, "-m", "xpulab", "run", "--level", "soak", "--device", "sim", "--check", "sft.smoke-loss-is-finite"]
FROM = 4
"""The first round in which the card is wrong; each round has one kernel here."""


@pytest.fixture
def environment(tmp_path):
    """The variables of kernels whose card is wrong from the round FROM on."""
    kernels, first_wrong = tmp_path / "kernels.txt", FROM

    def card_goes_wrong():
        kernels.write_text(kernels.read_text() + "." if kernels.exists() else ".")
        if len(kernels.read_text()) >= first_wrong:
            os.environ["XPULAB_SIM_FAULTS"] = "flip copy kind=h2d every=40 bit=12"

    fault = Fault("later", "later", "02_sft", ("cpu",), (), card_goes_wrong)
    return {**os.environ, **inject.prepare(fault, tmp_path), "PYTHONUNBUFFERED": "1"}


def test_a_card_that_goes_wrong_later_is_named_with_its_round(environment, tmp_path):
    command = [*COMMAND, "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as soak:
        before = next(line for line in soak.stdout if f"round {FROM}" in line)
        soak.send_signal(signal.SIGTERM)
        written = before + soak.stdout.read()
        code = soak.wait(60)
    lines = [json.loads(line) for line in (tmp_path / "out" / "soak.jsonl").read_text().splitlines()][:FROM]
    assert inject.why_not_injected(tmp_path) is None
    assert [line["outcome"] for line in lines] == ["passed", "passed", "passed", "failed"], written
    assert {problem["kind"] for problem in lines[-1]["problems"]} == {"difference"}, "every check is green"
    assert (code, f"first problem: round {FROM} (seed 0, " in written) == (1, True)
