"""Where the cards are: NUMA nodes, links and settings of the PCI bus, and which processes hold them.

Paths as documented by Linux (Documentation/ABI/testing/sysfs-bus-pci) and the vendors; not run on a card.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from xpulab.doctor.finding import Finding
from xpulab.doctor.host.finding import fine, found
from xpulab.doctor.pci import PciCard, link_of
from xpulab.messages import N_

DEVICE_NODE = re.compile(r"/dev/(xpu|nvidia)\d+")
ACS, EXTENDED, NEXT = 0x0D, 0x100, 20
"""The id of Access Control Services, where extended capabilities begin, the bit of the next one's offset (PCI Express, 7.7)."""
REDIRECTS = 0b1100
"""Of the control register: request and completion redirect, which send traffic between cards through the root complex."""


def placement(root: Path, cards: Sequence[PciCard], nics: dict[str, Path]) -> Iterator[Finding]:
    """Links, NUMA nodes and settings. nics: by name the PCI folder of each network card that training uses."""
    if not cards:
        return
    yield _links(root, cards)
    yield from _numa(root, cards, nics)
    if len(cards) > 1:
        yield _redirects(root)
        yield from _iommu(root)


def foreign_processes(root: Path, own: int) -> Finding:
    """Processes that hold a card, other than this one and those that started it."""
    ours, holders = _ancestors(root, own), {}
    for folder in (root / "proc").glob("[0-9]*"):
        pid = int(folder.name)
        nodes = _held(folder)
        if nodes and pid not in ours:
            name = _read(folder / "comm") or "?"
            holders[pid] = N_(f"{name} ({pid}) holds {', '.join(nodes)}")
    if holders:
        shown = "; ".join(holders[pid] for pid in sorted(holders)[:8])
        return found("foreign-processes", "wrong", shown)
    return fine("foreign-processes", N_("no process that this user can see holds a card"))


def _held(folder: Path) -> list[str]:
    """The device nodes of cards that a process has open, as far as this user may see."""
    names = set()
    try:
        links = list((folder / "fd").iterdir())
    except OSError:
        return []
    for link in links:
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if DEVICE_NODE.fullmatch(target):
            names.add(target)
    return sorted(names)


def _ancestors(root: Path, pid: int) -> set[int]:
    found_pids: set[int] = set()
    while pid > 0 and pid not in found_pids:
        found_pids.add(pid)
        match = re.search(r"^PPid:\s+(\d+)", _read(root / f"proc/{pid}/status"), re.M)
        pid = int(match[1]) if match else 0
    return found_pids


def _links(root: Path, cards: Sequence[PciCard]) -> Finding:
    """The width of a link that is used is that of the card; its speed may be lower while the card is idle."""
    links = {card.address: link_of(card.address, root) for card in cards}
    below = [f"{address}: {link}" for address, link in links.items() if link and " of " in link]
    narrow = [line for line in below if _width(line.split(" of ")[0]) != _width(line.split(" of ")[1])]
    if narrow:
        return found("pci-link", "wrong", "; ".join(narrow))
    if below:
        return found("pci-link", "warn", "; ".join(below))
    shown = sorted({link for link in links.values() if link}) or [N_("not shown by this system")]
    return fine("pci-link", N_(f"links of {len(cards)} cards: {', '.join(shown)}"))


def _width(link: str) -> str:
    return link.rpartition(" x")[2]


def _numa(root: Path, cards: Sequence[PciCard], nics: dict[str, Path]) -> Iterator[Finding]:
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*")))
    if nodes < 2:
        return
    of_cards = {card.address: _node(root / "sys/bus/pci/devices" / card.address) for card in cards}
    lost = [address for address, node in of_cards.items() if node is None]
    if lost:
        yield found("numa", "warn", N_(f"no NUMA node is known for {', '.join(lost)}, although this host has {nodes}"))
        return
    of_nics = {name: _node(folder) for name, folder in nics.items()}
    shown = ", ".join(N_(f"{address} on node {node}") for address, node in of_cards.items())
    far = [address for address, node in of_cards.items() if of_nics and node not in of_nics.values()]
    if far:
        yield found("numa", "warn", N_(f"{shown}; no network card is on the node of {', '.join(far)}"))
    else:
        yield fine("numa", shown)


def _node(folder: Path) -> int | None:
    text = _read(folder / "numa_node").strip()
    return int(text) if text.isdigit() else None


def _redirects(root: Path) -> Finding:
    """Bridges whose access control sends traffic between cards through the processor."""
    folders = sorted((root / "sys/bus/pci/devices").glob("*"))
    bridges = [folder for folder in folders if _read(folder / "class").strip().startswith("0x0604")]
    spaces = {folder.name: _bytes(folder / "config") for folder in bridges}
    readable = {name: space for name, space in spaces.items() if len(space) > EXTENDED}
    redirecting = [name for name, space in readable.items() if redirects(space)]
    if redirecting:
        return found("acs", "warn", N_(f"access control redirects traffic between cards at {', '.join(redirecting[:8])}"))
    if bridges and not readable:
        return Finding("acs", "unknown", N_("the configuration of bridges can be read by root only"))
    return fine("acs", N_(f"no redirect by access control at {len(readable)} bridges"))


def redirects(space: bytes) -> bool:
    """Whether the configuration space of a bridge has a request or completion redirect switched on."""
    offset = EXTENDED
    for _ in range(64):
        if offset < EXTENDED or offset + 8 > len(space):
            return False
        (head,) = struct.unpack_from("<I", space, offset)
        if head & 0xFFFF == ACS:
            return bool(struct.unpack_from("<H", space, offset + 6)[0] & REDIRECTS)
        offset = head >> NEXT
    return False


def _iommu(root: Path) -> Iterator[Finding]:
    has = any((root / "sys/class/iommu").glob("*"))
    passes = "iommu=pt" in _read(root / "proc/cmdline") or "iommu.passthrough=1" in _read(root / "proc/cmdline")
    if has and not passes:
        yield found("iommu", "warn", N_("an IOMMU translates the cards' traffic: the kernel was started without iommu=pt"))
    elif has:
        yield fine("iommu", N_("the IOMMU passes the cards' traffic through"))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
