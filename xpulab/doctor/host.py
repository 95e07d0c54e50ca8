"""Looks at the host before a card, for the five things that most often stop a training. Imports no Paddle and starts nothing.

    report = examine(HostRequest())
    report.outcome    # "wrong" when a training would fail here

Shared memory, locked memory, open files, room for checkpoints, and other processes on a card.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from xpulab import __version__
from xpulab.doctor import system
from xpulab.doctor.finding import Finding, known_finding
from xpulab.doctor.system import read_text
from xpulab.messages import N_

GIB = 1 << 30
SHARED_MEMORY_OF_A_CARD = GIB
"""Bytes of /dev/shm for each card: four workers with two batches of 64 MiB each, and what collectives take.

PyTorch's DataLoader and Paddle's pass batches through it; Docker's default is 64 MiB for all."""
OPEN_FILES = 4096
"""The least soft limit: each worker of a DataLoader and each connection to another rank holds several."""
DISK_LEAST, DISK_SHARE = 10 * GIB, 0.05
"""Free bytes of the folder of checkpoints, and their share."""
DEVICE_NODE = re.compile(r"/dev/(xpu|nvidia)\d+")


@dataclass(frozen=True)
class HostRequest:
    """What to look at. checkpoints: the folder that they are written to. root: "/" except in tests."""

    checkpoints: Path = Path(".")
    root: Path = field(default_factory=system.system_root)


@dataclass(frozen=True)
class HostReport:
    """All findings about a host. node: its name."""

    node: str
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Literal["ok", "warn", "wrong"]:
        """The worst verdict; what could not be read is no problem."""
        verdicts = {finding.verdict for finding in self.findings}
        return "wrong" if "wrong" in verdicts else "warn" if "warn" in verdicts else "ok"

    def to_json(self) -> dict[str, Any]:
        """As data/schema/host.schema.json describes it."""
        findings = [asdict(finding) for finding in self.findings]
        return {"schema": 2, "xpulab": __version__, "node": self.node, "outcome": self.outcome, "findings": findings}


def examine(request: HostRequest) -> HostReport:
    """Look at the host; takes a fraction of a second."""
    root = request.root
    cards = len(system.kunlun_cards(root)) + len(system.nvidia_cards(root))
    findings = (*_limits(root), _shared_memory(root, cards), _disk(request.checkpoints), _foreign_processes(root, os.getpid()))
    return HostReport(socket.gethostname(), findings)


def format_reason(report: HostReport) -> str:
    """One line: the first finding that is wrong, as a drain reason. It is not that of a run, which a health check may undo."""
    wrong = [finding for finding in report.findings if finding.verdict == "wrong"]
    if not wrong:
        return f"xpulab: nothing is wrong with host {report.node}"
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"[node_problem] host {wrong[0].id}: {wrong[0].seen}{more}; look: xpulab doctor --host"


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


def _shared_memory(root: Path, cards: int) -> Finding:
    mounts = (line.split() for line in read_text(root / "proc/mounts").splitlines())
    options = next((words[3] for words in mounts if words[1:2] == ["/dev/shm"]), None)
    if options is None:
        return _judged("shared-memory", "wrong", N_("/dev/shm is not mounted"))
    if stated := re.search(r"(?:^|,)size=(\d+)([kmg]?)", options):
        size = int(stated[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[stated[2]]
    else:  # tmpfs(5): half of the memory
        size = 1024 * int(_match(root / "proc/meminfo", r"^MemTotal: +(\d+)") or 0) // 2
    needed = SHARED_MEMORY_OF_A_CARD * max(1, cards)
    seen = N_(
        "/dev/shm has {size} GiB; workers of data loaders need about {needed} GiB for {value} cards",
        size=f"{size / GIB:.3g}",
        needed=f"{needed / GIB:g}",
        value=max(1, cards),
    )
    return _judged("shared-memory", "ok" if size >= needed else "wrong", seen)


def _disk(folder: Path) -> Finding:
    """Free space of a folder of checkpoints, or of the nearest one that is there."""
    usage = shutil.disk_usage(next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()))
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
    """Processes that hold a card, other than this one, as far as this user may see."""
    processes = {int(folder.name): folder for folder in (root / "proc").glob("[0-9]*")}
    holders = {pid: nodes for pid, folder in sorted(processes.items()) if pid != own and (nodes := _held(folder))}
    if not holders:
        return _judged("foreign-processes", "ok", N_("no process that this user can see holds a card"))
    names = {pid: read_text(processes[pid] / "comm") or "?" for pid in holders}
    listed = "; ".join(
        N_("{names} ({pid}) holds {nodes}", names=names[pid], pid=pid, nodes=", ".join(nodes)) for pid, nodes in holders.items()
    )
    return _judged("foreign-processes", "wrong", listed)


def _held(folder: Path) -> list[str]:
    """The device nodes of cards that a process has open."""
    names = set()
    try:
        for link in (folder / "fd").iterdir():
            names.add(os.readlink(link))
    except OSError:  # of another user, or it has just ended
        pass
    return sorted(filter(DEVICE_NODE.fullmatch, names))


def _match(path: Path, pattern: str) -> str:
    found = re.search(pattern, read_text(path), re.M)
    return found[1].strip() if found else ""
