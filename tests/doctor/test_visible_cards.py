"""Cards that a variable, a container or a scheduler hides are not missing; those that are expected are."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from xpulab import files
from xpulab.chapters.environment import card_identity
from xpulab.checks import check
from xpulab.checks.ledger import Ledger, ledger
from xpulab.devices import WHEELS
from xpulab.doctor import meant, versions
from xpulab.doctor.detect import detect
from xpulab.doctor.diagnosis import diagnose
from xpulab.doctor.meant import AcceleratorLost
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.system import SYSTEM_ROOT

LINE = '{at} {n} {n} 02K21A901CV00{n}A 41 0 44 0 93 1450 1450 1450 1450 1450 1450 30 96 0 98304 0 1.0:2.14:1.54.2.0 "P800 OAM"'
CELL = next(
    "".join(cell["source"])
    for cell in json.loads((files.NOTEBOOKS / "00_environment.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code" and '"hardware.cards"' in "".join(cell["source"])
)
GREEN, RED, SKIPPED = "passed", "failed", "skipped"


@pytest.fixture
def node(machine, monkeypatch):
    """A host with eight P800; none of our own variables."""
    for name in (*meant.VISIBILITY_VARIABLES["xpu"], meant.EXPECT):
        monkeypatch.delenv(name, raising=False)
    addresses = [f"0000:{bus:02x}:00.0" for bus in range(8)]
    for address in addresses:
        machine.pci(address, "1d22", "3688")
    machine.nodes(*(f"xpu{n}" for n in range(8)), "xpuctrl")
    for path in (machine.root / "dev").iterdir():
        path.chmod(0o666)
    (machine.bin / "text").write_text("\n".join(LINE.format(at=f"0000{at}", n=n) for n, at in enumerate(addresses)))
    machine.tool("xpu-smi", f'test "$1" = -m && exec /bin/cat {machine.bin}/text; exit 2')
    return machine


def keep(node, monkeypatch, *numbers):
    """A scheduler's cgroup lets this process use these cards only: access(2) says no, whatever the permissions are."""
    real, kept = os.access, {f"xpu{n}" for n in numbers} | {"xpuctrl"}

    def access(path, mode):
        name = os.path.basename(path)
        return name in kept if os.path.dirname(path) == str(node.root / "dev") else real(path, mode)

    monkeypatch.setattr(os, "access", access)


def cell_says(node, monkeypatch, paddle):
    """The outcome of hardware.cards, and what was compared, where Paddle sees so many cards: the notebook's own cell."""
    monkeypatch.setattr(ledger, "__dict__", vars(Ledger()))
    detection = detect(node.root)
    here, found = SimpleNamespace(name="xpu"), SimpleNamespace(detection=detection)
    names = {
        "check": check,
        "card_identity": card_identity,
        "versions": versions,
        "WHEELS": WHEELS,
        "here": here,
        "found": found,
    }
    exec(CELL, {**names, "card_count": lambda _: paddle})
    assert ledger.records["hardware.identities"].outcome in (GREEN, SKIPPED)
    return ledger.records["hardware.cards"].outcome, str(ledger.records["hardware.cards"])


@pytest.mark.parametrize(
    ("variables", "paddle", "outcome", "row"),
    [
        ({}, 8, GREEN, "8 of 8 visible"),
        ({}, 7, RED, "7 of 8 visible"),
        ({"XPU_VISIBLE_DEVICES": "0,1"}, 2, GREEN, "2 of 8 visible"),
        ({"XPU_VISIBLE_DEVICES": "0,1"}, 1, RED, "1 of 8 visible"),
        ({"CUDA_VISIBLE_DEVICES": "6,7,8,0"}, 2, GREEN, "2 of 8 visible"),  # there is no card 8, and the list ends there
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 8, GREEN, "8 of 8 visible"),  # if Paddle does not look at it
        ({"XPU_VISIBLE_DEVICES": "0,1"}, 9, RED, "9 of 8 visible"),
        ({"XPU_VISIBLE_DEVICES": "0,1", "XPULAB_EXPECT": "8"}, 2, RED, "8 of 8 visible"),
        ({"XPULAB_EXPECT": "2", "XPU_VISIBLE_DEVICES": "0,1"}, 2, GREEN, "2 of 8 visible"),
    ],
)
def test_the_notebook_compares_with_what_is_visible_and_with_what_is_expected(
    node, monkeypatch, variables, paddle, outcome, row
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found, compared = cell_says(node, monkeypatch, paddle)
    assert (found, row in compared) == (outcome, True), compared


def test_a_schedulers_cgroup_hides_cards_and_their_loss_is_still_seen(node, monkeypatch):
    keep(node, monkeypatch, 2, 5)
    assert cell_says(node, monkeypatch, 2)[0] == GREEN
    assert cell_says(node, monkeypatch, 1)[0] == RED
    monkeypatch.setenv(meant.EXPECT, "8")
    assert cell_says(node, monkeypatch, 2)[0] == RED


def test_a_container_counts_what_it_was_given_and_needs_no_tool(node, monkeypatch):
    node.file(".dockerenv", "")
    (node.bin / "xpu-smi").unlink()
    for n in range(2, 8):
        (node.root / f"dev/xpu{n}").unlink()
    assert cell_says(node, monkeypatch, 2)[0] == GREEN
    assert cell_says(node, monkeypatch, 1)[0] == RED


def test_where_nothing_shows_a_card_it_is_not_known(machine, monkeypatch):
    machine.tool("xpu-smi", "echo eight cards")
    assert cell_says(machine, monkeypatch, 8)[0] == SKIPPED


@pytest.mark.parametrize("hides", ["variable", "cgroup"])
def test_auto_and_the_doctor_take_what_is_visible_and_expected_cards_are_lost(node, monkeypatch, hides):
    if hides == "variable":
        monkeypatch.setenv("XPU_VISIBLE_DEVICES", "2,5")
    else:
        keep(node, monkeypatch, 2, 5)
    detection = detect(node.root)
    assert meant.auto(detection, ()) == "xpu"
    with pytest.raises(AcceleratorLost, match=r"2 of 8 cards.*limited by (XPU_VIS.*=2,5|a scheduler keeps /dev/xpu0)"):
        meant.auto(detection, (), meant.expected_count("8"))
    monkeypatch.setenv(SYSTEM_ROOT, str(node.root))
    for paddle, verdict, seen in ((2, "ok", "2 of 8 visible"), (1, "warn", "Paddle: 1"), (0, "wrong", "Paddle: 0")):
        facts = PaddleFacts(version="3.3.1", built_for="xpu", xpu_cards=paddle)
        findings = {each.id: each for each in diagnose("xpu", paddle=facts, detection=detection).findings}
        assert (findings["card-count"].verdict, seen in findings["card-count"].seen) == (verdict, True)
        assert findings["node-permissions"].verdict == "ok"
