"""The commit of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from xpulab import files


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
