"""Finds accelerators on the PCI bus, which the operating system shows without a driver and without a tool.

Reads sysfs below root, which is "/" except in tests. Ids as documented by the vendors; not run on a card.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUNLUN_VENDORS = ("1d22", "2057")
KUNLUN_DEVICES = {
    "3684": "KL1 or KL2",
    "3685": "KL2",
    "3686": "KL3",
    "3687": "KL3",
    "3688": "KL3",
    "3689": "KL3",
}
NVIDIA_VENDOR = "10de"
DISPLAY_CONTROLLERS = ("0300", "0302")
PROCESSING_ACCELERATOR = "1200"


@dataclass(frozen=True)
class PciCard:
    """One function on the PCI bus.

    address: domain:bus:device.function
    vendor, device: four hexadecimal digits, "1d22" and "3688"
    generation: "KL1 or KL2" (one id for both), "KL2", "KL3", "cuda"; None for an unknown Kunlun accelerator
    """

    address: str
    vendor: str
    device: str
    generation: str | None


def kunlun_cards(root: Path = Path("/")) -> tuple[PciCard, ...]:
    """Kunlun cards by vendor and device id; an unknown id of these vendors counts if its class is a processing accelerator."""
    return tuple(
        PciCard(address, vendor, device, KUNLUN_DEVICES.get(device))
        for address, vendor, device, kind in _functions(root)
        if vendor in KUNLUN_VENDORS and (device in KUNLUN_DEVICES or kind == PROCESSING_ACCELERATOR)
    )


def nvidia_cards(root: Path = Path("/")) -> tuple[PciCard, ...]:
    """NVIDIA cards: functions of that vendor that are display or 3D controllers (not audio, USB or bridges)."""
    return tuple(
        PciCard(address, vendor, device, "cuda")
        for address, vendor, device, kind in _functions(root)
        if vendor == NVIDIA_VENDOR and kind in DISPLAY_CONTROLLERS
    )


def link_of(address: str, root: Path = Path("/")) -> str | None:
    """The link of a function: "32.0 GT/s x16", or "16.0 GT/s x8 of 32.0 GT/s x16" when it is below what the card can do.

    None when the operating system does not show it. Source: Documentation/ABI/testing/sysfs-bus-pci of Linux.
    """
    folder = root / "sys/bus/pci/devices" / address
    now, most = (_link(folder, kind) for kind in ("current", "max"))
    return now if now is None or most in (None, now) else f"{now} of {most}"


def _link(folder: Path, kind: str) -> str | None:
    try:
        speed = (folder / f"{kind}_link_speed").read_text().strip().removesuffix(" PCIe")
        width = (folder / f"{kind}_link_width").read_text().strip()
    except OSError:
        return None
    return f"{speed} x{width}"


def _functions(root: Path) -> list[tuple[str, str, str, str]]:
    """Address, vendor, device and class (four hexadecimal digits each) of every function, in order of address."""
    return [
        (folder.name, *(_identity(folder / name) for name in ("vendor", "device", "class")))
        for folder in sorted((root / "sys/bus/pci/devices").glob("*"))
    ]


def _identity(file: Path) -> str:
    """The first four digits of 0x1d22 or 0x120000; empty when the file cannot be read (the device was just removed)."""
    try:
        return file.read_text().strip().removeprefix("0x")[:4].lower()
    except OSError:
        return ""
