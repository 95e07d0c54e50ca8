"""What the operating system shows of cards is read without a driver, without a tool and without privileges."""

from __future__ import annotations

import pytest

from xpulab.doctor import system


@pytest.mark.parametrize(
    ("vendor", "device", "generation"),
    [
        ("1d22", "3684", "KL1 or KL2"),
        ("1d22", "3685", "KL2"),
        ("1d22", "3688", "KL3"),
        ("1d22", "3689", "KL3"),
        ("2057", "4a00", None),
    ],
)
def test_kunlun_card_is_known_by_its_ids(machine, vendor, device, generation):
    machine.pci("0000:03:00.0", vendor, device)
    assert system.kunlun_cards(machine.root) == (system.PciCard("0000:03:00.0", vendor, device, generation),)


def test_audio_and_usb_of_an_nvidia_card_are_not_cards(machine):
    for function, kind in enumerate(("030000", "040300", "0c0330")):
        machine.pci(f"0000:01:00.{function}", "10de", "1eb8", kind)
    machine.pci("0000:65:00.0", "10de", "20b2", "030200")
    assert [card.address for card in system.nvidia_cards(machine.root)] == ["0000:01:00.0", "0000:65:00.0"]


@pytest.mark.parametrize(
    ("modules", "loaded"),
    [("kunlun 1944359 4 - Live 0x0\n", "kunlun"), ("xpu_driver 655360 0\n", "xpu_driver"), ("i915 1 0\n", None)],
)
def test_kernel_module_is_found_under_both_names(machine, modules, loaded):
    machine.file("proc/modules", modules)
    assert system.loaded_module(machine.root) == loaded
