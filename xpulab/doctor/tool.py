"""Runs a vendor's tool with limits on its time and its output."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Literal

from xpulab import child
from xpulab.child import OUTPUT_LIMIT
from xpulab.messages import N_

TIMEOUT = 10.0


@dataclass(frozen=True)
class ToolRun:
    """The result of one run of a tool.

    outcome: "ok" status 0; "missing" not on PATH; "failed" another status, or it could not be started; "hung" killed
        at the timeout; "unreadable" killed because it wrote more than OUTPUT_LIMIT bytes
    output: what it wrote to standard output, undecodable bytes replaced; of a run that failed also to standard error
    detail: one sentence for the user
    """

    command: tuple[str, ...]
    outcome: Literal["ok", "missing", "failed", "hung", "unreadable"]
    output: str
    detail: str


def run_tool(command: tuple[str, ...], timeout: float = TIMEOUT) -> ToolRun:
    """Runs command (a name on PATH and its arguments) for at most timeout seconds, with LC_ALL=C and no input."""
    shown = " ".join(command)
    path = shutil.which(command[0])
    if path is None:
        return ToolRun(command, "missing", "", N_("{command} is not on PATH", command=command[0]))
    try:
        ran = child.run([path, *command[1:]], timeout, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        return ToolRun(command, "failed", "", N_("{shown} cannot be started: {strerror}", shown=shown, strerror=error.strerror))
    killed = ran.killed or N_(" and was killed")
    if ran.is_too_long:
        detail = N_("{shown} wrote over {OUTPUT_LIMIT} bytes{killed}", shown=shown, OUTPUT_LIMIT=OUTPUT_LIMIT, killed=killed)
        return ToolRun(command, "unreadable", ran.output, detail)
    if ran.status is None:
        detail = N_("{shown} did not end within {timeout} s{killed}", shown=shown, timeout=f"{timeout:g}", killed=killed)
        return ToolRun(command, "hung", ran.output, detail)
    if ran.status != 0:
        detail = N_("{shown} ended with status {status}", shown=shown, status=ran.status) + _last_line(ran.errors, ran.output)
        return ToolRun(command, "failed", ran.output + ran.errors, detail)
    return ToolRun(command, "ok", ran.output, N_("{shown} answered", shown=shown))


def _last_line(*texts: str) -> str:
    """The last line of the first text that is not blank, as an addition to the detail; empty when all are blank."""
    for text in texts:
        if text.strip():
            return f": {text.strip().splitlines()[-1].strip()}"
    return ""
