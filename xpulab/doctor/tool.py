"""Runs a vendor's tool with limits on its time and its output."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Literal

TIMEOUT = 10.0
OUTPUT_LIMIT = 1 << 20
KILL_GRACE = 1.0


@dataclass(frozen=True)
class ToolRun:
    """The result of one run of a tool.

    outcome: "ok" status 0; "missing" not on PATH; "failed" another status, or it could not be started; "hung" killed
        at the timeout; "unreadable" killed because it wrote more than OUTPUT_LIMIT bytes
    output: what it wrote to standard output, undecodable bytes replaced
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
        return ToolRun(command, "missing", "", f"{command[0]} is not on PATH")
    try:
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        return ToolRun(command, "failed", "", f"{shown} cannot be started: {error.strerror}")

    deadline = time.monotonic() + timeout
    received = _collect(process, deadline)
    if sum(map(len, received)) > OUTPUT_LIMIT:
        return ToolRun(command, "unreadable", "", f"{shown} wrote over {OUTPUT_LIMIT} bytes{_kill_group(process)}")
    output, errors = (part.decode("utf-8", errors="replace") for part in received)
    try:
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return ToolRun(command, "hung", output, f"{shown} did not end within {timeout:g} s{_kill_group(process)}")
    if status != 0:
        return ToolRun(command, "failed", output, f"{shown} ended with status {status}{_last_line(errors, output)}")
    return ToolRun(command, "ok", output, f"{shown} answered")


def _collect(process: subprocess.Popen, deadline: float) -> tuple[bytearray, bytearray]:
    """Standard output and standard error, until both are closed, the deadline has passed or the limit is exceeded."""
    received = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in received:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                chunk = os.read(key.fd, 1 << 16)
                received[key.fileobj] += chunk
                if not chunk:
                    selector.unregister(key.fileobj)
            if sum(map(len, received.values())) > OUTPUT_LIMIT:
                break
    for pipe in received:
        pipe.close()
    return received[process.stdout], received[process.stderr]


def _kill_group(process: subprocess.Popen) -> str:
    """Kills the tool with all its children and reaps it. Returns an addition to the detail."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILL_GRACE)
    except subprocess.TimeoutExpired:
        # A process in uninterruptible sleep ignores SIGKILL until the driver call returns.
        return " and cannot be killed: it waits inside the driver"
    return " and was killed"


def _last_line(*texts: str) -> str:
    """The last line of the first text that is not blank, as an addition to the detail; empty when all are blank."""
    for text in texts:
        if text.strip():
            return f": {text.strip().splitlines()[-1].strip()}"
    return ""
