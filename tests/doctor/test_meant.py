"""`auto` takes what a machine is meant to have; a card that cannot be used is never a reason to take the CPU."""

from __future__ import annotations

import os

import pytest

from xpulab.chapters.shared import device
from xpulab.devices import REPEATABLE
from xpulab.doctor import meant
from xpulab.doctor.detect import detect
from xpulab.doctor.meant import AcceleratorLost
from xpulab.errors import InputError

HINT = "to judge the CPU all the same: --device cpu"


def _expected(variables):
    return meant.expected_count(variables[meant.EXPECT], f"{meant.EXPECT}=") if variables else None


def lost(machine, wheels=(), **variables):
    """Why `auto` is red on this machine."""
    with pytest.raises(AcceleratorLost) as raised:
        meant.auto(detect(machine.root), wheels, _expected(variables))
    assert str(raised.value).splitlines()[-1] == HINT
    return raised.value.lost


def auto(machine, wheels=(), **variables):
    return meant.auto(detect(machine.root), wheels, _expected(variables))


@pytest.mark.parametrize("script", [None, "exit 1", "echo garbage"])
def test_a_card_on_the_bus_without_a_node_is_lost(machine, script):
    machine.pci("0000:03:00.0", "1d22", "3688")
    if script:
        machine.tool("xpu-smi", script)
    found = lost(machine)
    assert (found.id, found.device) == ("no-device-node", "xpu") and "0000:03:00.0 (1d22:3688)" in found.since[0]


@pytest.mark.parametrize(
    ("pci", "nodes", "modules", "wheels", "variables", "found"),
    [
        (("0000:03:00.0", "1d22", "3685"), ("xpu0", "xpuctrl"), "", (), {}, ("kl2", "xpu")),
        (("0000:17:00.0", "10de", "20b2", "030200"), (), "", (), {}, ("no-driver", "gpu")),
        ((), (), "nvidia 56823808 0 - Live 0x0\n", (), {}, ("no-driver", "gpu")),
        ((), (), "", ["paddlepaddle-xpu"], {}, ("no-card", "xpu")),
        ((), (), "", ["paddlepaddle-gpu"], {}, ("no-card", "gpu")),
        ((), (), "", (), {"XPULAB_EXPECT": "8"}, ("no-card", None)),
    ],
    ids=["KL2", "no driver", "driver without a card", "XPU wheel", "GPU wheel", "expected"],
)
def test_what_a_machine_is_meant_to_have_and_cannot_use_is_lost(machine, pci, nodes, modules, wheels, variables, found):
    machine.nvml(error="Driver Not Loaded")
    if pci:
        machine.pci(*pci)
    machine.nodes(*nodes)
    machine.file("proc/modules", modules)
    why = lost(machine, wheels, **variables)
    assert (why.id, found[1] and why.device) == found


def test_a_display_chip_alone_is_no_accelerator(machine):
    machine.pci("0000:01:00.0", "10de", "1eb8", "030000")
    machine.nvml(error="Driver Not Loaded")
    assert auto(machine) == "cpu"


def test_fewer_cards_than_expected_are_lost(p800):
    assert lost(p800, XPULAB_EXPECT="3").id == "too-few"


def test_a_tool_that_is_not_understood_does_not_make_a_healthy_card_lost(p800):
    p800.tool("xpu-smi", "echo a new format")
    assert auto(p800) == auto(p800, XPULAB_EXPECT="2") == "xpu"


def test_a_node_that_is_missing_beside_others_is_lost_on_a_host_but_not_in_a_container(p800):
    (p800.root / "dev/xpu1").unlink()
    assert lost(p800).problem.startswith("1 of 2 cards")
    p800.file(".dockerenv", "")
    assert auto(p800) == "xpu"
    assert lost(p800, XPULAB_EXPECT="2").id == "too-few"


def test_a_wrong_sum_on_the_accelerator_does_not_lead_to_the_cpu(p800, monkeypatch):
    import paddle

    places = []
    monkeypatch.setattr(device, "detect", lambda: detect(p800.root))
    monkeypatch.setattr(device, "card_count", lambda name: 2)
    monkeypatch.setattr(paddle, "set_device", places.append)
    monkeypatch.setattr(paddle, "arange", lambda *arguments, **named: paddle.zeros([8]))
    monkeypatch.setattr(device, "check_parameters", lambda: None)
    with pytest.raises(InputError, match=r"computes 0.0 .*--device cpu"):
        device.use_device()
    assert places == ["xpu:0"]


def test_a_gpu_is_asked_for_repeatable_results_but_for_what_the_user_has_set(monkeypatch):
    import paddle

    asked = {}
    monkeypatch.setattr(device, "check_parameters", lambda: None)
    monkeypatch.setattr(device, "card_count", lambda name: 1)
    monkeypatch.setattr(device, "_record_run_context", lambda device: None)
    monkeypatch.setattr(paddle, "set_device", lambda place: None)
    monkeypatch.setattr(paddle, "set_flags", asked.update)
    monkeypatch.setenv("FLAGS_embedding_deterministic", "2")
    monkeypatch.delenv("FLAGS_cudnn_deterministic", raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    device.use_device("gpu")
    assert asked == {"FLAGS_cudnn_deterministic": 1}
    assert [os.environ[flag] for flag in REPEATABLE["gpu"]] == ["2", "1"]
