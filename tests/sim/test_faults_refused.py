"""The plug-in also rejects invalid text of faults, if it was not checked in Python: no fault is silently ignored."""

from __future__ import annotations

import json

import pytest

from tests.sim.test_faults_grammar import REFUSED
from xpulab.sim import faults

pytestmark = pytest.mark.integration

BAD = [text for text, _, _ in REFUSED]
GOOD = (
    "",
    "flip memory start=0 size=4096 n=1",
    "fail task kind=send bytes>=3 card=2 rank=1 from=2 every=3",
    "slow task factor=2.5",
    "drop collective rank=1 n=2",
    "delay alloc seconds=1",
    *(f"fail {site} kind={kind} n=1000000" for site, kinds in faults.KINDS.items() for kind in kinds),
)


@pytest.fixture(scope="module")
def answers(seen, library):
    return seen("refused_by_the_plugin", str(library), json.dumps([*BAD, *GOOD]))


@pytest.mark.parametrize("text", BAD)
def test_the_plugin_refuses(answers, text):
    assert "XPULAB_SIM_FAULTS" in answers[text]


@pytest.mark.parametrize("text", GOOD)
def test_both_take(answers, text):
    assert answers[text] == ""
    faults.parse(text)


def test_a_process_with_a_bad_text_does_not_start(probe, library):
    done = probe(
        "refused_by_the_plugin", str(library), "[]", CUSTOM_DEVICE_ROOT=str(library.parent), XPULAB_SIM_FAULTS="flop copy"
    )
    assert done.code != 0
    assert "'flop copy': no such action; the grammar is in xpulab/sim/faults.py" in done.err
