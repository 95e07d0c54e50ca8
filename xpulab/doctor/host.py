"""Looks at the host before a job, for what most often stops one although every card computes. No Paddle; changes nothing.

    report = examine(HostRequest())
    report.outcome    # "wrong" when a training would fail here

Limits, shared memory, room for checkpoints, other processes on a card; how many cards there are, and what the vendor's tool
says of their memory, temperature and state; the network interfaces that variables name.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from xpulab import __version__
from xpulab.doctor import meant, system
from xpulab.doctor.detect import Detection, detect
from xpulab.doctor.diagnosis import card_state, health, vendor_tool
from xpulab.doctor.finding import Finding, known_finding
from xpulab.doctor.network import interfaces
from xpulab.doctor.system import read_text
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.records.origin import node_name

GIB = 1 << 30
SHARED_MEMORY_OF_A_CARD = GIB
"""Bytes of /dev/shm for each card: four workers with two batches of 64 MiB each, and what collectives take.

PyTorch's DataLoader and Paddle's pass batches through it; Docker's default is 64 MiB for all."""
OPEN_FILES = 4096
"""The least soft limit: each worker of a DataLoader and each connection to another rank holds several."""
DISK_LEAST, DISK_SHARE = 10 * GIB, 0.05
"""Free bytes of the folder of checkpoints, and their share."""
DEVICE_NODE = re.compile(r"/dev/(xpu|nvidia)\d+")
DAEMONS = (
    *("nvidia-persiste", "nv-hostengine", "dcgm-exporter", "nvidia-device-p", "nvidia-cuda-mps"),
    *("nvidia-smi", "dcgmi", "xpu-smi", "xpu_smi"),
)
"""Names, of which Linux keeps 15 characters, of the vendors' services and tools: they hold every card and use nothing of it."""
PASSING_SECONDS = 2.0
"""A process that no longer holds a card after this time was passing: it asked for a state, or was about to end."""
TOOL_SECONDS = 4.0
"""How long a vendor's tool may take: a prolog waits, and Slurm ends a health check after 60 s."""


@dataclass(frozen=True)
class HostRequest:
    """What to look at.

    checkpoints: their folder; None: no disk is judged. device: which cards; "auto" all that are there, "cpu" and "sim" none.
    expect: how many there must be; None leaves it to XPULAB_EXPECT, else to what the PCI bus shows.
    model: what the model of each must contain, lower-case letters and digits only: "p800"; "" for any.
    beside_jobs: whether jobs run meanwhile: what they hold of cards and shared memory is no finding.
    """

    checkpoints: Path | None = None
    device: str = "auto"
    expect: meant.Expected | None = None
    model: str = ""
    beside_jobs: bool = False


@dataclass(frozen=True)
class HostReport:
    """All findings about a host. node: its name, as its scheduler knows it. boot: the id of its boot, None where unknown."""

    node: str
    boot: str | None
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Literal["ok", "warn", "wrong"]:
        """The worst verdict; what could not be read is no problem."""
        verdicts = {finding.verdict for finding in self.findings}
        return "wrong" if "wrong" in verdicts else "warn" if "warn" in verdicts else "ok"

    def to_json(self) -> dict[str, Any]:
        """As data/schema/host.schema.json describes it."""
        return {"schema": 3, "xpulab": __version__, "outcome": self.outcome, **asdict(self)}


def of_label(label: str) -> HostRequest:
    """What a node must have that its site calls "xpu-p800-8": the device, a part of the cards' model, how many cards.

    Raises InputError for any other text.
    """
    parts = re.fullmatch(r"((xpu|gpu)-([a-z0-9-]+)-)(\d+)", label)
    if parts is None:
        raise InputError(N_("--label {label}: write device, model and number of cards, as in xpu-p800-8", label=repr(label)))
    return HostRequest(device=parts[2], model=_plain(parts[3]), expect=meant.expected_count(parts[4], f"--label {parts[1]}"))


def examine(request: HostRequest) -> HostReport:
    """Look at the host; takes a fraction of a second, and TOOL_SECONDS for each vendor's tool that does not answer.

    Raises InputError when XPULAB_EXPECT is no number of cards.
    """
    root = system.system_root()
    detection = detect(root, TOOL_SECONDS)
    cards = len(detection.kunlun_pci) + len(detection.nvidia_pci)
    findings = [*_limits(root), _shared_memory(root, request.beside_jobs, cards)]
    if request.checkpoints is not None:
        findings.append(_disk(request.checkpoints))
    if not request.beside_jobs:
        findings.append(_foreign_processes(root, os.getpid()))
    findings += [*_cards(request, detection, root), *interfaces(root)]
    return HostReport(node_name(), system.boot_id(), tuple(findings))


def format_reason(report: HostReport) -> str:
    """One line: the first finding that is wrong, as a drain reason. It is not that of a run, which a health check may undo."""
    wrong = [finding for finding in report.findings if finding.verdict == "wrong"]
    if not wrong:
        return f"xpulab: nothing is wrong with host {report.node}"
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"[node_problem] host {wrong[0].id}: {wrong[0].seen}{more}; look: xpulab host"


def _judged(id: str, verdict: Literal["ok", "warn", "wrong"], seen: str) -> Finding:
    """A finding; one that is not ok has cause and remedy of the row of the remedies with "host-" before its id."""
    return Finding(id, "ok", seen) if verdict == "ok" else known_finding(id, verdict, seen, f"host-{id}")


def _limits(root: Path) -> Iterator[Finding]:
    """Limits of this process, as its children inherit them: soft ones, None is unlimited."""
    text = read_text(root / "proc/self/limits")
    if not text:
        yield Finding("limits", "unknown", N_("/proc/self/limits cannot be read"))
        return
    locked, files = (_limit(text, name) for name in ("Max locked memory", "Max open files"))
    has_rdma = any((root / "sys/class/infiniband").glob("*"))  # only its network cards need it
    seen = (
        N_("locked memory is unlimited")
        if locked is None
        else N_("{locked} GiB of locked memory", locked=f"{locked / GIB:.2g}")
    )
    yield _judged("locked-memory", "ok" if locked is None else "wrong" if has_rdma else "warn", seen)
    seen = N_("{value} open files (soft limit)", value="unlimited" if files is None else f"{files:,}")
    yield _judged("open-files", "ok" if files is None or files >= OPEN_FILES else "wrong", seen)


def _limit(text: str, name: str) -> int | None:
    found = re.search(rf"^{name} +(\d+)", text, re.M)
    return int(found[1]) if found else None


def _shared_memory(root: Path, is_beside_jobs: bool, cards: int) -> Finding:
    """Its free space, by statvfs(2); beside jobs, which may hold some of it, its size."""
    try:
        usage = shutil.disk_usage(root / "dev/shm")
    except OSError:
        return _judged("shared-memory", "wrong", N_("/dev/shm is not mounted"))
    room, needed = usage.total if is_beside_jobs else usage.free, SHARED_MEMORY_OF_A_CARD * max(1, cards)
    seen = N_(
        "/dev/shm has {free} GiB free of {size}; workers of data loaders need about {needed} GiB for {value} cards",
        free=f"{usage.free / GIB:.3g}",
        size=f"{usage.total / GIB:.3g}",
        needed=f"{needed / GIB:g}",
        value=max(1, cards),
    )
    return _judged("shared-memory", "ok" if room >= needed else "wrong", seen)


def _disk(folder: Path) -> Finding:
    """Free space of a folder of checkpoints, or of the nearest one that is there."""
    try:
        usage = shutil.disk_usage(next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()))
    except OSError as error:  # this user may not look into it, or it was removed
        return Finding("disk", "unknown", N_("{folder} cannot be read: {error}", folder=folder, error=error.strerror))
    seen = N_(
        "{free} GiB free of {total} in {folder}",
        free=f"{usage.free / GIB:.1f}",
        total=f"{usage.total / GIB:.1f}",
        folder=folder,
    )
    if usage.free < DISK_LEAST:
        return _judged("disk", "wrong", seen)
    return _judged("disk", "warn" if usage.free < DISK_SHARE * usage.total else "ok", seen)


def _foreign_processes(root: Path, own: int) -> Finding:
    """Processes that hold a card for a while, other than this one, as far as this user may see."""
    if holders := _holders((root / "proc").glob("[0-9]*"), own):
        time.sleep(PASSING_SECONDS)
    if holders := _holders(holders, own):
        return _judged("foreign-processes", "wrong", "; ".join(holders.values()))
    return _judged("foreign-processes", "ok", N_("no process that this user can see holds a card"))


def _holders(processes: Iterable[Path], own: int) -> dict[Path, str]:
    """By its folder in /proc each of the processes that holds a card, with what it holds."""
    holders = {}
    for folder in sorted(processes, key=lambda folder: int(folder.name)):
        name = re.sub("[^ -~]+", "?", read_text(folder / "comm")) or "?"  # a process chooses it: any bytes
        if int(folder.name) != own and name not in DAEMONS and (nodes := _held(folder)):
            holders[folder] = N_("{names} ({pid}) holds {nodes}", names=name, pid=folder.name, nodes=", ".join(nodes))
    return holders


def _held(folder: Path) -> list[str]:
    """The device nodes of cards that a process has open."""
    names = set()
    try:
        for link in (folder / "fd").iterdir():
            names.add(os.readlink(link))
    except OSError:  # of another user, or it has just ended
        pass
    return sorted(filter(DEVICE_NODE.fullmatch, names))


def _cards(request: HostRequest, detection: Detection, root: Path) -> Iterator[Finding]:
    """Whether the cards are there that must be, and are what they must be; and what their driver and tools say of them."""
    expect = request.expect or meant.expected()
    try:
        if request.device == "auto":
            meant.auto(detection, (), expect)
        elif request.device in meant.VISIBILITY_VARIABLES:
            meant.require_cards(request.device, detection, expect)
    except meant.AcceleratorLost as error:
        yield Finding("cards", "wrong", error.lost.problem, "; ".join(error.lost.steps), "; ".join(error.lost.since) or None)
    else:
        if expect is not None and request.device in ("auto", *meant.VISIBILITY_VARIABLES):
            yield Finding("cards", "ok", N_("as many cards can be used as {source} says", source=expect.source))
    devices = [name for name in detection.available if name != "cpu" and request.device in ("auto", name)]
    readings = [meant.of_device(name, detection)[1] for name in devices]
    if other := sorted({card.model for read in readings for card in read.cards if request.model not in _plain(card.model)}):
        yield _judged("model", "wrong", N_("{other}, not {model}", other=", ".join(other), model=request.model))
    if devices:
        yield from card_state(detection, root)
    for reading in readings:
        yield vendor_tool(reading, detection.in_container)
        yield from health(reading.cards)


def _plain(model: str) -> str:
    return re.sub("[^a-z0-9]", "", model.lower())
