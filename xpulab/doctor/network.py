"""The network interfaces that variables of collective libraries name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from xpulab.doctor.finding import Finding, known_finding
from xpulab.doctor.system import read_text
from xpulab.messages import N_

BY_PREFIX = "NCCL_SOCKET_IFNAME"
INTERFACES = (BY_PREFIX, "GLOO_SOCKET_IFNAME", "BKCL_SOCKET_IFNAME", "BKCL_RDMA_NICS")
"""Variables that name network interfaces. The first takes prefixes, "=" before names and "^" before what it leaves out
(NCCL, environment variables); the others names. Those of BKCL by examples: docs/xpu-environment.md."""


def interfaces(root: Path) -> Iterator[Finding]:
    """Whether the network interfaces that variables name are up; no finding where none is named.

    Loopback and tunnels have the state "unknown". Source: operstates.rst of Linux.
    """
    named = {name: os.environ[name] for name in INTERFACES if os.environ.get(name)}
    states = {folder.name: read_text(folder / "operstate") for folder in (root / "sys/class/net").glob("*")}
    up = sorted(name for name, state in states.items() if state in ("up", "unknown"))
    lacking = [f"{name}={value!r}" for name, value in named.items() if not _are_up(value, up, name == BY_PREFIX)]
    if named and not states:
        seen = N_("/sys/class/net cannot be read, which would show the interfaces of {named}", named=", ".join(named))
        yield Finding("interfaces", "unknown", seen)
    elif lacking:
        seen = N_("{lacking}: not up; those that are: {up}", lacking=", ".join(lacking), up=", ".join(up) or N_("none"))
        yield known_finding("interfaces", "wrong", seen, "host-interfaces")
    elif named:
        yield Finding("interfaces", "ok", N_("up: the interfaces of {named}", named=", ".join(named)))


def _are_up(value: str, up: list[str], by_prefix: bool) -> bool:
    """Whether the interfaces of a variable are among those that are up: of prefixes one is enough, as for NCCL."""
    names = [name.strip() for name in value.lstrip("^=").split(",") if name.strip()]
    if not by_prefix:
        return {*names} <= {*up}
    exact = value.startswith("=")
    return value.startswith("^") or any(link == name if exact else link.startswith(name) for link in up for name in names)
