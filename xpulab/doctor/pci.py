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
OTHER_FUNCTIONS = ("01", "02", "04", "05", "06", "07", "08", "0c", "0d")
"""Base classes that are no accelerator: storage, network, multimedia, memory, bridge, serial ports, timers, buses, radio."""
NVIDIA_VENDOR = "10de"
DISPLAY_CONTROLLER, COMPUTE_CONTROLLER = "0300", "0302"
"""Classes of NVIDIA's cards: one that also drives a display, and one that only computes."""


@dataclass(frozen=True)
class PciCard:
    """One function on the PCI bus.

    address: domain:bus:device.function
    vendor, device: four hexadecimal digits, "1d22" and "3688"
    generation: "KL1 or KL2" (one id for both), "KL2", "KL3", "cuda"; None for a Kunlun card that this suite does not know
    kind: its class, four hexadecimal digits, "1200"
    is_virtual: whether it is a virtual function of a card that this machine has itself
    """

    address: str
    vendor: str
    device: str
    generation: str | None
    kind: str = "1200"
    is_virtual: bool = False

    def __str__(self) -> str:
        return f"{self.address} ({self.vendor}:{self.device})"


def kunlun_cards(root: Path = Path("/")) -> tuple[PciCard, ...]:
    """Kunlun cards by vendor and device id; an unknown id of these vendors is a card unless its class says what else it is."""
    return tuple(
        PciCard(address, vendor, device, KUNLUN_DEVICES.get(device), kind, _is_virtual(address, root))
        for address, vendor, device, kind in _functions(root)
        if vendor in KUNLUN_VENDORS and (device in KUNLUN_DEVICES or kind[:2] not in OTHER_FUNCTIONS)
    )


def nvidia_cards(root: Path = Path("/")) -> tuple[PciCard, ...]:
    """NVIDIA cards: functions of that vendor that are display or 3D controllers (not audio, USB or bridges)."""
    return tuple(
        PciCard(address, vendor, device, "cuda", kind, _is_virtual(address, root))
        for address, vendor, device, kind in _functions(root)
        if vendor == NVIDIA_VENDOR and kind in (DISPLAY_CONTROLLER, COMPUTE_CONTROLLER)
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
        (folder.name, _identity(folder / "vendor"), _identity(folder / "device"), _identity(folder / "class"))
        for folder in sorted((root / "sys/bus/pci/devices").glob("*"))
    ]


def _is_virtual(address: str, root: Path) -> bool:
    """Whether the operating system shows the physical function beside it: not within a virtual machine that was given it."""
    return (root / "sys/bus/pci/devices" / address / "physfn").exists()


def _identity(file: Path) -> str:
    """The first four digits of 0x1d22 or 0x120000; empty when the file cannot be read (the device was just removed)."""
    try:
        return file.read_text().strip().removeprefix("0x")[:4].lower()
    except OSError:
        return ""
