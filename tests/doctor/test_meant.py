"""`auto` takes what a machine is meant to have; a card that cannot be used is never a reason to take the CPU."""

from __future__ import annotations

import pytest

from xpulab.chapters.shared import device
from xpulab.doctor import meant
from xpulab.doctor.detect import detect
from xpulab.doctor.diagnosis import diagnose
from xpulab.doctor.meant import AcceleratorLost
from xpulab.errors import InputError

HINT = "to judge the CPU all the same: --device cpu"


def lost(machine, wheels=(), **variables):
    """Why `auto` is red on this machine."""
    with pytest.raises(AcceleratorLost) as raised:
        meant.auto(detect(machine.root), wheels, meant.expected(variables))
    assert str(raised.value).splitlines()[-1] == HINT
    return raised.value.lost


def auto(machine, wheels=(), **variables):
    return meant.auto(detect(machine.root), wheels, meant.expected(variables))


def test_a_machine_that_shows_nothing_is_a_cpu(machine):
    assert auto(machine, ["paddlepaddle"]) == "cpu"


def test_a_healthy_machine_has_its_cards(p800):
    assert auto(p800, XPULAB_LABEL="xpu-p800-2") == auto(p800, XPULAB_EXPECT="2") == auto(p800) == "xpu"


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
        ((), (), "", (), {"XPULAB_LABEL": "gpu-a100-8"}, ("no-card", "gpu")),
    ],
    ids=["KL2", "no driver", "driver without a card", "XPU wheel", "GPU wheel", "expected", "label"],
)
def test_what_a_machine_is_meant_to_have_and_cannot_use_is_lost(machine, pci, nodes, modules, wheels, variables, found):
    if pci:
        machine.pci(*pci)
    machine.nodes(*nodes)
    if modules:
        machine.file("proc/modules", modules)
    why = lost(machine, wheels, **variables)
    assert (why.id, found[1] and why.device) == found


def test_an_unknown_kunlun_card_is_a_card(machine):
    machine.pci("0000:03:00.0", "1d22", "3700", kind="0b4000")
    assert lost(machine).id == "no-device-node"
    machine.nodes("xpu0", "xpuctrl")
    assert auto(machine) == "xpu"
    finding = next(each for each in diagnose(root=machine.root).findings if each.id == "unknown-card")
    assert finding.verdict == "warn" and "1d22:3700" in finding.seen


def test_a_display_chip_alone_is_a_warning(machine):
    machine.pci("0000:01:00.0", "10de", "1eb8", "030000")
    assert auto(machine) == "cpu"
    assert [each.verdict for each in diagnose("cpu", root=machine.root).findings if each.id == "display-chip"] == ["warn"]


@pytest.mark.parametrize("variables", [{"XPULAB_EXPECT": "3"}, {"XPULAB_LABEL": "xpu-p800-3"}])
def test_fewer_cards_than_expected_are_lost(p800, variables):
    assert lost(p800, **variables).id == "too-few"


def test_seven_of_eight_cards_are_lost(machine):
    machine.nodes(*(f"xpu{card}" for card in range(7)), "xpuctrl")
    assert lost(machine, XPULAB_EXPECT="8").problem == "7 of 8 cards"
    assert auto(machine, XPULAB_EXPECT="7") == "xpu"


def test_a_node_that_is_missing_beside_others_is_lost_on_a_host_but_not_in_a_container(p800):
    (p800.root / "dev/xpu1").unlink()
    assert lost(p800).problem.startswith("1 of 2 cards")
    p800.file(".dockerenv", "")
    assert auto(p800) == "xpu"
    assert lost(p800, XPULAB_EXPECT="2").id == "too-few"


@pytest.mark.parametrize("text", ["0", "-1", "eight", "1.5", "", "\u0663"])
def test_a_number_of_cards_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="--expect 8"):
        meant.expected_count(text)


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


def test_cards_that_a_variable_hides_from_paddle_alone_are_missed(monkeypatch):
    monkeypatch.setattr(device, "card_count", lambda name: 7)
    monkeypatch.setenv("XPULAB_EXPECT", "8")
    with pytest.raises(InputError, match="Paddle sees 7"):
        device._require_expected(device.Device("xpu", 1, "xpu:0"))
    device._require_expected(device.Device("cpu", 1, "cpu"))


@pytest.mark.parametrize("wheel", [True, False])
def test_an_image_for_gpus_on_a_p800_is_a_finding(p800, installed, wheel):
    p800.file(".dockerenv", "")
    path = installed({"paddlepaddle-gpu": "3.3.1"} if wheel else {"paddlepaddle-xpu": "3.3.0"})
    environ = {} if wheel else {"NVIDIA_VISIBLE_DEVICES": "all"}
    found = {each.id: each for each in diagnose(root=p800.root, search_path=path, environ=environ).findings}
    assert found["gpu-image"].verdict == ("wrong" if wheel else "warn") and "xpu.Dockerfile" in found["gpu-image"].remedy
    clean = diagnose(root=p800.root, search_path=[], environ={}).findings
    assert "gpu-image" not in {each.id for each in clean}
