"""Reads what the drivers of cards show: device nodes, the state of each card, the loaded kernel module.

root is "/" except in tests. Paths as documented by the vendors; not run on a card.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODULES = ("kunlun", "xpu_driver")
SYSTEM_ROOT = "XPULAB_SYSTEM_ROOT"
"""The variable that names the folder which stands for "/" where a test cannot mount over /sys and /dev."""


def system_root(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder below which the machine is looked at: "/", except in tests."""
    return Path(environ.get(SYSTEM_ROOT) or "/")


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


def card_nodes(root: Path = Path("/")) -> tuple[DeviceNode, ...]:
    """/dev/xpu0, /dev/xpu1, ...: one per compute device, in numerical order."""
    return _numbered(root, "xpu")


def nvidia_nodes(root: Path = Path("/")) -> tuple[DeviceNode, ...]:
    """/dev/nvidia0, /dev/nvidia1, ...: one for each card, in numerical order."""
    return _numbered(root, "nvidia")


def control_node(root: Path = Path("/")) -> DeviceNode | None:
    """/dev/xpuctrl, which every process that uses a card also opens; None when it does not exist."""
    path = root / "dev/xpuctrl"
    return _node(path, root) if path.exists() else None


def card_states(root: Path = Path("/")) -> dict[int, str]:
    """The content of /proc/xpu/devN/state by N: RUNNING and NORMAL are healthy, ERROR needs a reset."""
    states = {}
    for file in (root / "proc/xpu").glob("dev*/state"):
        if number := re.fullmatch(r"dev(\d+)", file.parent.name):
            states[int(number[1])] = file.read_text(errors="replace").strip()
    return dict(sorted(states.items()))


def loaded_module(root: Path = Path("/")) -> str | None:
    """The name of the driver's kernel module: kunlun since driver 4.0, xpu_driver before; None when not loaded."""
    return next((name for name in MODULES if name in _loaded_modules(root)), None)


def nvidia_driver_is_loaded(root: Path = Path("/")) -> bool:
    """Whether the kernel has NVIDIA's driver. Source: the driver's README, "The /proc interface"."""
    return (root / "proc/driver/nvidia/version").exists() or "nvidia" in _loaded_modules(root)


def in_container(root: Path = Path("/")) -> bool:
    """Whether this is a container of Docker, podman or Kubernetes, by the files that they create."""
    marker_files = (root / ".dockerenv", root / "run/.containerenv")
    groups = root / "proc/1/cgroup"
    traces = groups.read_text() if groups.exists() else ""
    return any(file.exists() for file in marker_files) or bool(re.search(r"docker|kubepods|containerd", traces))


def _loaded_modules(root: Path) -> set[str]:
    modules = root / "proc/modules"
    return {line.split()[0] for line in modules.read_text().splitlines() if line} if modules.exists() else set()


def _numbered(root: Path, name: str) -> tuple[DeviceNode, ...]:
    """The nodes below /dev whose name is this one and a number, in numerical order."""
    numbers = {path: path.name.removeprefix(name) for path in (root / "dev").glob(f"{name}[0-9]*")}
    nodes = [path for path, number in numbers.items() if number.isdigit()]
    return tuple(_node(path, root) for path in sorted(nodes, key=lambda path: int(numbers[path])))


def _node(path: Path, root: Path) -> DeviceNode:
    shown = f"/{path.relative_to(root)}"
    return DeviceNode(shown, stat.filemode(path.stat().st_mode), os.access(path, os.R_OK | os.W_OK))
