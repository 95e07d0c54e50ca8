"""What should be the same on all hosts of a cluster: kernel, drivers, processor, cards, network, settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from xpulab.doctor import driver
from xpulab.doctor.host.rdma import ports
from xpulab.doctor.pci import kunlun_cards, nvidia_cards

GIB = 1 << 20
"""In the KiB of /proc/meminfo."""
SETTINGS = re.compile(r"\b(?:iommu|intel_iommu|amd_iommu|pci|numa_balancing|mitigations|default_hugepagesz|isolcpus)=\S+")
"""Of the kernel's command line: what makes a host faster or slower than another."""


def facts(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Values by name; what this host does not have is left out."""
    cards = (*kunlun_cards(root), *nvidia_cards(root))
    used, _ = ports(root, environ)
    found = {
        "kernel": _read(root / "proc/sys/kernel/osrelease"),
        "system": _match(root / "etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'),
        "driver": _driver(root),
        "processor": _match(root / "proc/cpuinfo", r"^model name\s*: (.*)$"),
        "cores": str(len(re.findall(r"^processor\s*:", _read(root / "proc/cpuinfo"), re.M)) or ""),
        "memory": _memory(root),
        "cards": _counted(f"{card.vendor}:{card.device}" for card in cards),
        "rdma ports": _counted(f"{port.layer} {port.rate}" for port in used),
        "rdma firmware": _counted(_read(root / "sys/class/infiniband" / port.device / "fw_ver") for port in used),
        "cpu governor": _counted(map(_read, (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))),
        "kernel settings": " ".join(SETTINGS.findall(_read(root / "proc/cmdline"))),
        "huge pages": _match(root / "proc/meminfo", r"^HugePages_Total:\s+(\d+)"),
        "transparent huge pages": _match(root / "sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]"),
        "locked memory": _match(root / "proc/self/limits", r"^Max locked memory +(\S+)"),
        "/dev/shm": _match(root / "proc/mounts", r"^\S+ /dev/shm \S+ \S*?\b(size=\w+)"),
    }
    return {name: value for name, value in found.items() if value}


def _driver(root: Path) -> str:
    """The version of the driver of the cards."""
    versions = [_read(root / "sys/module" / name / "version") for name in driver.MODULES]
    return next(filter(None, versions), "") or _match(root / "proc/driver/nvidia/version", r"Kernel Module\D*([\d.]+)")


def _memory(root: Path) -> str:
    """In whole steps of 8 GiB: what the firmware keeps differs a little."""
    total = _match(root / "proc/meminfo", r"^MemTotal: +(\d+)")
    return f"{8 * round(int(total) / GIB / 8)} GiB" if total else ""


def _counted(values: Iterable[str]) -> str:
    counts = Counter(value for value in values if value)
    return ", ".join(f"{count} x {value}" for value, count in sorted(counts.items()))


def _match(path: Path, pattern: str) -> str:
    match = re.search(pattern, _read(path), re.M)
    return match[1].strip() if match else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
