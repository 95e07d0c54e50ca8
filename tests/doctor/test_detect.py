"""The device is xpu, gpu or cpu by stated rules, and everything that was looked for can be shown."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import A100
from xpulab.doctor.detect import INSTALLATION_STEPS, detect, require
from xpulab.errors import InputError


def without_a_driver(machine):
    machine.pci("0000:17:00.0", "10de", "20b2", "030200")
    machine.nvml(error="Driver Not Loaded")


@pytest.mark.parametrize(
    ("prepare", "device"),
    [
        pytest.param(lambda machine: None, "cpu", id="bare"),
        pytest.param(lambda machine: machine.nodes("xpu0", "xpuctrl"), "xpu", id="device node"),
        pytest.param(lambda machine: machine.nodes("xpuctrl"), "cpu", id="control node"),
        pytest.param(
            lambda machine: machine.answering("xpu-smi", {"-q": "kl3_query.txt", "-m": "kl3_machine.txt"}), "xpu", id="xpu-smi"
        ),
        pytest.param(lambda machine: machine.answering("xpu-smi", {"": "intel.txt"}), "cpu", id="Intel's tool"),
        pytest.param(lambda machine: machine.nvml(A100), "gpu", id="NVML"),
        pytest.param(lambda machine: machine.nodes("nvidia0"), "gpu", id="device node of NVIDIA, before anything is installed"),
        pytest.param(without_a_driver, "cpu", id="no driver"),
    ],
)
def test_the_device_follows_from_what_is_there(machine, prepare, device):
    prepare(machine)
    assert detect(machine.root).device == device


@pytest.mark.parametrize("script", ["exec /bin/sleep 60", "exit 1", "echo garbage"])
@pytest.mark.parametrize(("on_the_bus", "device"), [(True, "xpu"), (False, "cpu")])
def test_failing_tool_makes_an_xpu_only_with_a_card_on_the_bus(machine, script, on_the_bus, device):
    machine.tool("xpu-smi", script)
    if on_the_bus:
        machine.pci("0000:03:00.0", "1d22", "3688")
    assert detect(machine.root, timeout=0.2).device == device


@pytest.mark.parametrize("device", ["xpu", "gpu"])
def test_device_that_is_missing_is_refused_with_installation_steps(machine, device):
    with pytest.raises(InputError) as refused:
        require(device, detect(machine.root))
    for part in (f"no {device} on this machine", "neither xpu-smi nor xpu_smi is on PATH", *INSTALLATION_STEPS[device]):
        assert part in str(refused.value)
