"""Where a result comes from: the name of the node, and the commit of this repository."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from xpulab import files

VARIABLES = ("SLURMD_NODENAME", "NODE_NAME")
"""Set by Slurm for a task, and by a Kubernetes manifest from spec.nodeName; the host name of a pod is another one."""


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """The scheduler's name of this node, else its host name."""
    return next((environ[name] for name in VARIABLES if environ.get(name)), platform.node())


def commit(root: Path = files.ROOT) -> str:
    """Of this repository, with a plus behind it when something was changed; "unknown" outside one."""
    try:
        asked = [
            subprocess.run(["git", "-C", str(root), *what], capture_output=True, text=True, timeout=20, check=True)
            for what in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    head, changes = (each.stdout.strip() for each in asked)
    return head + ("+" if changes else "")
