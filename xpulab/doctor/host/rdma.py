"""The RDMA ports of this host, of those network cards that training uses.

Paths as documented by Linux (Documentation/ABI/stable/sysfs-class-infiniband); not run on such a card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from xpulab.doctor.finding import Finding
from xpulab.doctor.host.finding import fine, found
from xpulab.messages import N_

USED = ("BKCL_RDMA_NICS", "NCCL_IB_HCA")
"""The variables that name what training uses: network interfaces, one a card, or RDMA devices."""


@dataclass(frozen=True)
class Port:
    """One port. name: as "mlx5_0/1". state: as "ACTIVE". layer: "Ethernet" or "InfiniBand". rate: as "400 Gb/sec (4X NDR)".
    has_gid: whether any address is not zero. interfaces: of the device. folder: of the device on the PCI bus."""

    name: str
    state: str
    layer: str
    rate: str
    has_gid: bool
    interfaces: tuple[str, ...]
    folder: Path

    @property
    def device(self) -> str:
        """The name without the port."""
        return self.name.partition("/")[0]


def ports(root: Path, environ: Mapping[str, str]) -> tuple[list[Port], str]:
    """The ports that training uses, and what chose them: a variable, or "" for all."""
    everything = list(_ports(root))
    for variable in USED:
        names = {name.strip("=^ ").partition(":")[0] for name in environ.get(variable, "").split(",") if name.strip("=^ ")}
        if names and not environ[variable].startswith("^"):
            return [port for port in everything if port.device in names or names & set(port.interfaces)], variable
    return everything, ""


def rdma(root: Path, environ: Mapping[str, str], expected: int | None) -> Iterator[Finding]:
    """State, address, number and rate of the ports. expected: how many must be there; None does not count them."""
    used, chosen_by = ports(root, environ)
    there = N_(f"{len(used)} RDMA ports of {chosen_by}") if chosen_by else N_(f"{len(used)} RDMA ports")
    if expected is not None and len(used) != expected:
        yield found("rdma-count", "wrong", N_(f"{there}, {expected} are expected: {_names(used)}"))
    elif chosen_by and not used:
        yield found("rdma-count", "wrong", N_(f"{chosen_by}={environ[chosen_by]} names no RDMA port of this host"))
    if not used:
        return
    down = [f"{port.name} is {port.state}" for port in used if port.state != "ACTIVE"]
    if down:
        yield found("rdma-state", "wrong", f"{'; '.join(down)}{f' of {chosen_by}' if chosen_by else ''}")
    without = [port for port in used if not port.has_gid and port.state == "ACTIVE"]
    if without:
        yield found("rdma-gid", "wrong", N_(f"no address (GID) but zeros: {_names(without)}"))
    kinds = sorted({f"{port.layer} {port.rate}" for port in used})
    if len(kinds) > 1:
        yield found("rdma-rate", "warn", N_(f"ports of several kinds: {', '.join(kinds)}"))
    if not down and not without:
        many, named = len(used), ", ".join(kinds)
        of_chosen = N_(f"{many} RDMA ports are active of {chosen_by}: {named}")
        yield fine("rdma", of_chosen if chosen_by else N_(f"{many} RDMA ports are active: {named}"))


def _names(some: list[Port]) -> str:
    return ", ".join(port.name for port in some) or "none"


def _ports(root: Path) -> Iterator[Port]:
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        device = folder.parent.parent
        yield Port(
            f"{device.name}/{folder.name}",
            _read(folder / "state").partition(": ")[2],
            _read(folder / "link_layer"),
            _read(folder / "rate"),
            any(set(_read(gid)) - set("0:") for gid in (folder / "gids").glob("*")),
            tuple(sorted(path.name for path in (device / "device/net").glob("*"))),
            device / "device",
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
