"""What the operating system shows of accelerators: functions on the PCI bus, device nodes, drivers; is this a container?

It needs no vendor's tool and no privileges. root is "/" except in tests. Ids and paths as documented by the vendors; not run on
a card.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEM_ROOT = "XPULAB_SYSTEM_ROOT"
"""The variable that names the folder which stands for "/" where a test cannot mount over /sys and /dev."""
MODULES = ("kunlun", "xpu_driver")
"""Kunlun's kernel module: since driver 4.0, and before."""
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
    is_virtual: whether it is a virtual function of a card that this machine has itself; not within a virtual machine
    """

    address: str
    vendor: str
    device: str
    generation: str | None
    kind: str = "1200"
    is_virtual: bool = False

    def __str__(self) -> str:
        return f"{self.address} ({self.vendor}:{self.device})"


@dataclass(frozen=True)
class DeviceNode:
    """A node below /dev.

    path: "/dev/xpu0"
    permissions: as `ls -l` prints them; "crw-rw-rw-" when the driver is installed correctly
    usable: this process can read and write it
    """

    path: str
    permissions: str
    usable: bool

    @property
    def is_hidden(self) -> bool:
        """Whether everybody may use it and this process may not: a cgroup of the scheduler keeps it for others.

        access(2) asks the cgroup too. Source: fs/namei.c of Linux, inode_permission.
        """
        return not self.usable and self.permissions.endswith("rw-")


def system_root() -> Path:
    """The folder below which the machine is looked at: "/", except in tests."""
    return Path(os.environ.get(SYSTEM_ROOT) or "/")


def kunlun_cards(root: Path) -> tuple[PciCard, ...]:
    """Kunlun cards by vendor and device id; an unknown id of these vendors is a card unless its class says what else it is."""
    found = (card for card in _functions(root) if card.vendor in KUNLUN_VENDORS)
    return tuple(card for card in found if card.generation or card.kind[:2] not in OTHER_FUNCTIONS)


def nvidia_cards(root: Path) -> tuple[PciCard, ...]:
    """NVIDIA cards: functions of that vendor that are display or 3D controllers (not audio, USB or bridges)."""
    found = (card for card in _functions(root) if card.kind in (DISPLAY_CONTROLLER, COMPUTE_CONTROLLER))
    return tuple(card for card in found if card.vendor == NVIDIA_VENDOR)


def link_of(address: str) -> str | None:
    """The link of a function: "32.0 GT/s x16", or "16.0 GT/s x8 of 32.0 GT/s x16" when it is below what the card can do.

    None when the operating system does not show it. Source: Documentation/ABI/testing/sysfs-bus-pci of Linux.
    """
    folder = Path("/sys/bus/pci/devices") / address
    speeds, widths = ([read_text(folder / f"{kind}_link_{of}") for kind in ("current", "max")] for of in ("speed", "width"))
    now, most = (f"{speed.removesuffix(' PCIe')} x{width}" for speed, width in zip(speeds, widths, strict=True))
    if not (speeds[0] and widths[0]):
        return None
    return now if now == most or not speeds[1] else f"{now} of {most}"


def numbered_nodes(root: Path, name: str) -> tuple[DeviceNode, ...]:
    """/dev/xpu0, /dev/xpu1, ... or those of "nvidia": one for each compute device, in numerical order."""
    numbers = {path: path.name.removeprefix(name) for path in (root / "dev").glob(f"{name}[0-9]*")}
    nodes = [path for path, number in numbers.items() if number.isdigit()]
    return tuple(_node(path, root) for path in sorted(nodes, key=lambda path: int(numbers[path])))


def control_node(root: Path) -> DeviceNode | None:
    """/dev/xpuctrl, which every process that uses a card also opens; None when it does not exist."""
    path = root / "dev/xpuctrl"
    return _node(path, root) if path.exists() else None


def card_states(root: Path) -> dict[int, str]:
    """The content of /proc/xpu/devN/state by N: RUNNING and NORMAL are healthy, ERROR needs a reset."""
    states = {}
    for file in (root / "proc/xpu").glob("dev*/state"):
        if number := re.fullmatch(r"dev(\d+)", file.parent.name):
            states[int(number[1])] = read_text(file)
    return dict(sorted(states.items()))


def loaded_module(root: Path) -> str | None:
    """The name of Kunlun's kernel module; None when it is not loaded."""
    return next((name for name in MODULES if name in _loaded_modules(root)), None)


def nvidia_driver_is_loaded(root: Path) -> bool:
    """Whether the kernel has NVIDIA's driver. Source: the driver's README, "The /proc interface"."""
    return (root / "proc/driver/nvidia/version").exists() or "nvidia" in _loaded_modules(root)


def in_container(root: Path) -> bool:
    """Whether this is a container of Docker, podman or Kubernetes, by the files that they create."""
    marker_files = (root / ".dockerenv", root / "run/.containerenv")
    traces = read_text(root / "proc/1/cgroup")
    return any(file.exists() for file in marker_files) or bool(re.search(r"docker|kubepods|containerd", traces))


def boot_id() -> str | None:
    """What the kernel calls the time since it was started; None where it does not say. Source: random(4)."""
    return read_text(system_root() / "proc/sys/kernel/random/boot_id") or None


def read_text(path: Path) -> str:
    """The content of a file without white space at its ends; empty when it cannot be read, as of a device just removed."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _functions(root: Path) -> Iterator[PciCard]:
    """Every function, in order of address."""
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        ids = (read_text(folder / name).removeprefix("0x")[:4].lower() for name in ("vendor", "device", "class"))
        vendor, device, kind = ids
        generation = "cuda" if vendor == NVIDIA_VENDOR else KUNLUN_DEVICES.get(device)
        yield PciCard(folder.name, vendor, device, generation, kind, (folder / "physfn").exists())


def _loaded_modules(root: Path) -> set[str]:
    return {line.split()[0] for line in read_text(root / "proc/modules").splitlines() if line}


def _node(path: Path, root: Path) -> DeviceNode:
    shown = f"/{path.relative_to(root)}"
    return DeviceNode(shown, stat.filemode(path.stat().st_mode), os.access(path, os.R_OK | os.W_OK))
