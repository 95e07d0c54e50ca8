"""A runner's label fits a machine that has exactly these cards, by the recorded outputs of the vendors' tools."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from xpulab import cli
from xpulab.doctor.detect import detect
from xpulab.doctor.label import compare, label_of, parse
from xpulab.errors import InputError


@pytest.fixture
def a100(machine, formats):
    """A host with two A100 cards, as tests/doctor/formats/nvidia.txt shows them."""
    machine.tool("nvidia-smi", f"exec /bin/cat {formats / 'nvidia.txt'}")
    return machine


def compared(text, machine):
    return compare(parse(text), detect(machine.root))


@pytest.mark.parametrize("text", ["xpu-p800-2", "xpu-p800-oam-2", "xpu-2"])
def test_a_label_of_these_cards_fits(p800, text):
    assert compared(text, p800).fits


@pytest.mark.parametrize("text", ["gpu-a100-2", "gpu-a100-80gb-2", "gpu-a100-sxm4-80gb-2", "gpu-2"])
def test_a_label_of_nvidia_cards_fits(a100, text):
    assert compared(text, a100).fits


@pytest.mark.parametrize("text", ["xpu-p800-8", "xpu-p800-1", "xpu-8"])
def test_another_number_of_cards_does_not_fit(p800, text):
    comparison = compared(text, p800)
    assert not comparison.fits and comparison.line.startswith("measured 2 xpu, expected ")


def test_another_model_does_not_fit(p800, a100):
    assert compared("xpu-r200-2", p800).line == "measured 2 xpu; of other models: P800 OAM, expected 2 xpu r200"
    assert compared("gpu-h100-2", a100).line == "measured 2 gpu; of other models: NVIDIA A100-SXM4-80GB, expected 2 gpu h100"


def test_a_machine_without_cards_fits_no_label_of_cards(machine):
    assert not compared("xpu-1", machine).fits and not compared("gpu-a100-1", machine).fits


def test_a_card_without_a_device_node_does_not_fit(p800):
    (p800.root / "dev/xpu1").unlink()
    assert compared("xpu-p800-2", p800).line == "measured 2 xpu; 1 device nodes, expected 2 xpu p800"


def test_without_the_tool_nodes_are_counted_and_the_model_is_not_known(machine):
    machine.nodes("xpu0", "xpu1", "xpuctrl")
    assert compared("xpu-2", machine).fits
    assert "the model is not known: neither xpu-smi nor xpu_smi is on PATH" in compared("xpu-p800-2", machine).line


def test_a_tool_that_fails_does_not_fit(machine):
    machine.nodes("xpu0", "xpu1", "xpuctrl")
    machine.tool("xpu-smi", "exit 1")
    assert not compared("xpu-2", machine).fits and not compared("xpu-p800-2", machine).fits


@pytest.mark.parametrize("text", ["cpu-2", "sim-16"])
def test_there_are_as_many_simulated_cards_as_one_asks_for(machine, text):
    assert compared(text, machine).fits


@pytest.mark.parametrize(
    "text", ["", "p800-8", "xpu", "xpu-", "xpu-p800", "xpu-p800-0", "xpu-P800-8", "xpu--8", "tpu-4", "sim-17", "cpu-x86-2"]
)
def test_what_is_no_label_is_refused(text):
    with pytest.raises(InputError, match="label"):
        parse(text)


def test_a_machine_says_its_own_label(p800):
    assert str(label_of(detect(p800.root))) == "xpu-p800-oam-2"


def test_nvidia_cards_have_a_label_that_fits(a100):
    label = label_of(detect(a100.root))
    assert str(label) == "gpu-a100-sxm4-80gb-2" and compare(label, detect(a100.root)).fits


def test_cards_of_two_models_have_no_label(machine):
    machine.answering("xpu-smi", {"": "kl1_kl2_table_wide.txt"})
    with pytest.raises(InputError, match="different models"):
        label_of(detect(machine.root))


def test_the_command_exits_with_1_and_the_text_of_a_drain_reason(a100):
    done = CliRunner().invoke(cli.app, ["cards", "gpu-a100-8"])
    line = "xpulab: cards measured 2 gpu, expected 8 gpu a100; rerun: xpulab cards gpu-a100-8\n"
    assert (done.exit_code, done.stdout) == (1, line)


def test_the_command_exits_with_0_when_the_label_fits_and_without_one_prints_it(a100):
    assert CliRunner().invoke(cli.app, ["cards", "gpu-a100-2"]).exit_code == 0
    assert CliRunner().invoke(cli.app, ["cards"]).stdout == "gpu-a100-sxm4-80gb-2\n"


def test_the_command_exits_with_2_for_what_is_no_label(machine):
    done = CliRunner().invoke(cli.app, ["cards", "p800x8"])
    assert done.exit_code == 2 and "xpu-p800-8" in done.stderr
