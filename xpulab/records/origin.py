"""Where a result comes from: the name of the node, when, and the commit of this repository."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime

from xpulab import files

VARIABLES = ("XPULAB_NODE", "SLURMD_NODENAME", "NODE_NAME")
"""Set by env/operations/settings.sh or a site, by Slurm for a task, and by a Kubernetes manifest from spec.nodeName: the host
name of a pod is another one."""


def node_name() -> str:
    """The scheduler's name of this node, else its host name."""
    return next((os.environ[name] for name in VARIABLES if os.environ.get(name)), platform.node())


def date_of_now() -> str:
    """The present date as results have it, in local time with its offset from UTC: "2026-11-22T03:10:00+00:00"."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def seconds_of(date: str) -> float:
    """The seconds since 1970 of a date as results have it. Raises ValueError or TypeError, also where it has no time zone."""
    read = datetime.fromisoformat(date)
    if read.tzinfo is None:
        raise ValueError(f"the date {date} has no time zone")
    return read.timestamp()


def commit() -> str:
    """Of this repository, with a plus behind it when something was changed; "unknown" outside one."""
    try:
        asked = [
            subprocess.run(["git", "-C", str(files.ROOT), *what], capture_output=True, text=True, timeout=20, check=True)
            for what in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    head, changes = (each.stdout.strip() for each in asked)
    return head + ("+" if changes else "")
