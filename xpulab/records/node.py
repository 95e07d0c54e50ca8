"""The name of this node, as its scheduler knows it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

VARIABLES = ("SLURMD_NODENAME", "NODE_NAME")
"""Set by Slurm for a task, and by a Kubernetes manifest from spec.nodeName; the host name of a pod is another one."""


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """The scheduler's name of this node, else its host name."""
    return next((environ[name] for name in VARIABLES if environ.get(name)), platform.node())
