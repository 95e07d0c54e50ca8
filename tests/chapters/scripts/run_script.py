"""What a worker of the fork server runs: a script of this folder, as a process of its own would."""

from __future__ import annotations

import json
import runpy
import sys


def main(payload: bytes) -> None:
    """payload: the script's path and its arguments, as JSON."""
    sys.argv[:] = json.loads(payload)
    runpy.run_path(sys.argv[0], run_name="__main__")
