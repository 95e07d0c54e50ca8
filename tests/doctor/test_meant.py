"""`auto` takes what a machine is meant to have; a card that cannot be used is never a reason to take the CPU."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.doctor.conftest import A100
from xpulab import cli
from xpulab.chapters.shared import device
from xpulab.doctor import meant
from xpulab.doctor.detect import detect
from xpulab.doctor.diagnosis import diagnose
from xpulab.doctor.meant import AcceleratorLost, differs, expected_label
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


@pytest.fixture
def a100(machine):
    machine.nvml(A100, A100)
    return machine


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
    machine.nvml(error="Driver Not Loaded")
    if pci:
        machine.pci(*pci)
    machine.nodes(*nodes)
    machine.file("proc/modules", modules)
    why = lost(machine, wheels, **variables)
    assert (why.id, found[1] and why.device) == found


def test_a_display_chip_alone_is_a_warning(machine):
    machine.pci("0000:01:00.0", "10de", "1eb8", "030000")
    machine.nvml(error="Driver Not Loaded")
    assert auto(machine) == "cpu"
    assert [each.verdict for each in diagnose("cpu", root=machine.root).findings if each.id == "display-chip"] == ["warn"]


@pytest.mark.parametrize("variables", [{"XPULAB_EXPECT": "3"}, {"XPULAB_LABEL": "xpu-p800-3"}])
def test_fewer_cards_than_expected_are_lost(p800, variables):
    assert lost(p800, **variables).id == "too-few"


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


LABELS = {
    "p800": {
        **dict.fromkeys(("xpu-p800-2", "xpu-p800-oam-2", "xpu-2")),
        **{"xpu-p800-8": "2 xpu", "xpu-p800-1": "2 xpu", "xpu-r200-2": "other models: P800 OAM"},
    },
    "a100": {**dict.fromkeys(("gpu-a100-2", "gpu-a100-80gb-2", "gpu-2")), "gpu-h100-2": "models: NVIDIA A100-SXM4-80GB"},
    "machine": {**dict.fromkeys(("cpu-2", "sim-16")), "xpu-1": "0 xpu", "gpu-a100-1": "0 gpu"},
}


@pytest.mark.parametrize(("cards", "label"), [(cards, label) for cards, labels in LABELS.items() for label in labels])
def test_a_label_fits_these_cards_alone(request, cards, label):
    problem = differs(expected_label(label), detect(request.getfixturevalue(cards).root))
    why = LABELS[cards][label]
    assert problem is None if why is None else why in problem


@pytest.mark.parametrize(
    "text", ["", "p800-8", "xpu", "xpu-", "xpu-p800", "xpu-p800-0", "xpu-P800-8", "xpu--8", "tpu-4", "sim-17", "cpu-x86-2"]
)
def test_what_is_no_label_is_refused(text):
    with pytest.raises(InputError, match="label"):
        expected_label(text)


@pytest.mark.parametrize(
    ("label", "code", "printed"),
    [
        ("gpu-a100-8", 1, "expected 8 gpu a100; rerun: xpulab cards gpu-a100-8\n"),
        ("a100x8", 2, "xpu-p800-8"),
    ],
)
def test_the_command_says_whether_a_label_fits(a100, label, code, printed):
    done = CliRunner().invoke(cli.app, ["cards", label])
    assert done.exit_code == code and printed in (done.stdout if code < 2 else done.stderr)
