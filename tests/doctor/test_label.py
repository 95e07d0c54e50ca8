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


FITS = {
    "p800": ["xpu-p800-2", "xpu-p800-oam-2", "xpu-2"],
    "a100": ["gpu-a100-2", "gpu-a100-80gb-2", "gpu-a100-sxm4-80gb-2", "gpu-2"],
    "machine": ["cpu-2", "sim-16"],
}
DOES_NOT_FIT = {
    "p800": {"xpu-p800-8": "2 xpu", "xpu-p800-1": "2 xpu", "xpu-8": "2 xpu", "xpu-r200-2": "other models: P800 OAM"},
    "a100": {"gpu-h100-2": "other models: NVIDIA A100-SXM4-80GB"},
    "machine": {"xpu-1": "0 xpu", "gpu-a100-1": "0 gpu"},
}


@pytest.mark.parametrize(("cards", "text"), [(cards, text) for cards, texts in FITS.items() for text in texts])
def test_a_label_of_these_cards_fits(request, cards, text):
    assert compared(text, request.getfixturevalue(cards)).fits


@pytest.mark.parametrize(
    ("cards", "text", "why"), [(cards, *each) for cards, texts in DOES_NOT_FIT.items() for each in texts.items()]
)
def test_another_number_or_model_does_not_fit(request, cards, text, why):
    comparison = compared(text, request.getfixturevalue(cards))
    assert not comparison.fits and why in comparison.line


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


@pytest.mark.parametrize(
    "text", ["", "p800-8", "xpu", "xpu-", "xpu-p800", "xpu-p800-0", "xpu-P800-8", "xpu--8", "tpu-4", "sim-17", "cpu-x86-2"]
)
def test_what_is_no_label_is_refused(text):
    with pytest.raises(InputError, match="label"):
        parse(text)


@pytest.mark.parametrize(("cards", "text"), [("p800", "xpu-p800-oam-2"), ("a100", "gpu-a100-sxm4-80gb-2")])
def test_a_machine_says_its_own_label(request, cards, text):
    assert str(label_of(detect(request.getfixturevalue(cards).root))) == text


def test_cards_of_two_models_have_no_label(machine):
    machine.answering("xpu-smi", {"": "kl1_kl2_table_wide.txt"})
    with pytest.raises(InputError, match="different models"):
        label_of(detect(machine.root))


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["gpu-a100-8"], 1, "xpulab: cards measured 2 gpu, expected 8 gpu a100; rerun: xpulab cards gpu-a100-8\n"),
        (["gpu-a100-2"], 0, ""),
        ([], 0, "gpu-a100-sxm4-80gb-2\n"),
        (["a100x8"], 2, "xpu-p800-8"),
    ],
)
def test_the_command_says_whether_a_label_fits_and_without_one_prints_it(a100, arguments, code, printed):
    done = CliRunner().invoke(cli.app, ["cards", *arguments])
    assert done.exit_code == code and printed in (done.stdout if code < 2 else done.stderr)
