"""What a node does in a fleet run: run, bundle, send; and say what went wrong. It answers in lines of its standard output.

They come through srun or ssh, so no folder is shared, and they arrive when the disk of the node is full too.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from xpulab.child import Child
from xpulab.child import run as run_child
from xpulab.fleet import foreign
from xpulab.messages import N_

PREFIX = "xpulab-task "
ENDED = DONE, LATE, DISK, FAILED = N_("done"), N_("late"), N_("disk"), N_("failed")
"""How a task can end.

done: the run has a verdict, and its bundle was sent. late: the run did not end within its time limit.
disk: the node has no room for a run. failed: the run left no verdict, or no bundle could be made of it.
"""

ROOM = 64 * 2**20
"""Bytes that must be free: a run of all notebooks at level smoke leaves 5 MiB, at level standard about 30."""

_PART_BYTES = 6000
"""Of a bundle in one line: ClusterShell and Slurm read lines, and short ones would be many."""
_ENDS_WITHIN = 20.0
"""Seconds that a run has after Ctrl-C to report what has finished."""
_BUNDLED_WITHIN = 240.0
_SILENT = "it printed nothing"


@dataclass(frozen=True)
class Started:
    """The task runs. host: the name that the node has for itself."""

    host: str


@dataclass(frozen=True)
class Part:
    """A part of the bundle, in order. text: base64."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The task's last message. outcome: of ENDED. sentence: what was wrong, "" when nothing was.

    seconds: how long the task took. size: bytes of the bundle that was sent before.
    """

    outcome: str
    sentence: str
    seconds: float
    size: int


Message = Started | Part | Ended
_KINDS = {kind.__name__: kind for kind in (Started, Part, Ended)}
_TYPES: Mapping[str, Any] = {"str": str, "float": (int, float), "int": int}


def format_message(message: Message) -> str:
    """The message as one line, without the newline."""
    return PREFIX + json.dumps({"message": type(message).__name__, **asdict(message)})


def parse_message(line: str) -> Message | None:
    """The message of a line; None for a line of the run itself, and for one that was cut off."""
    if not line.startswith(PREFIX):
        return None
    try:
        stored = foreign.loads(line.removeprefix(PREFIX))
        message = _KINDS[stored.pop("message")](**stored)
        if not all(isinstance(getattr(message, each.name), _TYPES[str(each.type)]) for each in fields(message)):
            return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None if isinstance(message, Ended) and message.outcome not in ENDED else message


def parts_of(bundle: bytes) -> Iterator[Part]:
    """A bundle as messages."""
    for start in range(0, len(bundle), _PART_BYTES):
        yield Part(base64.b64encode(bundle[start : start + _PART_BYTES]).decode("ascii"))


def run_task(node: str, xpulab: Sequence[str], run: Sequence[str], limit: float, say: Callable[[str], None] = print) -> Ended:
    """Do the task; returns its last message.

    node: the name that the fleet has for it. xpulab: the words that start xpulab here. run: what follows them in the command of
    the run. limit: seconds that the run may take. say: sends a line.
    """
    say(format_message(Started(os.uname().nodename)))
    began, size = time.monotonic(), 0
    try:
        with tempfile.TemporaryDirectory(prefix=f"xpulab-{Path(node).name}-", ignore_cleanup_errors=True) as name:
            free = shutil.disk_usage(name).free
            if free < ROOM:
                room, folder = ROOM >> 20, tempfile.gettempdir()
                outcome, sentence = (
                    DISK,
                    N_(
                        "{folder} is full: {free} MiB are free, {room} MiB are needed; set TMPDIR",
                        folder=folder,
                        free=free >> 20,
                        room=room,
                    ),
                )
            else:
                outcome, sentence = _run(xpulab, run, Path(name) / "run", limit, say)
            bundle = Path(name) / "bundle.zip"
            if (Path(name) / "run" / "result.json").exists():
                if why := _bundle(xpulab, Path(name) / "run", bundle):
                    outcome, sentence = FAILED, N_("its run cannot be bundled: {why}", why=why)
                else:
                    size = bundle.stat().st_size
                    for part in parts_of(bundle.read_bytes()):
                        say(format_message(part))
    except OSError as error:
        outcome, sentence = DISK, N_("the node has no folder for the run: {error}; set TMPDIR", error=error)
    ended = Ended(outcome, sentence, round(time.monotonic() - began, 1), size)
    say(format_message(ended))
    return ended


def end_with(stream: int) -> None:
    """Stop this process, as Ctrl-C does, when the other end of a stream is closed. stream: its file descriptor."""

    def wait() -> None:
        while os.read(stream, 1 << 12):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def _run(xpulab: Sequence[str], run: Sequence[str], folder: Path, limit: float, say: Callable[[str], None]) -> tuple[str, str]:
    """Run the notebooks; at the time limit, and when this process is stopped, the run and all its processes end."""
    command = [*xpulab, "run", *run, "--out", str(folder)]
    last = [_SILENT]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        reader = threading.Thread(target=_read, args=(child, last, say), daemon=True)
        reader.start()
        code = child.wait(limit)
        if code is None:
            child.send_signal(signal.SIGINT)  # as a user would press Ctrl-C: xpulab run then reports what has finished
            child.wait(_ENDS_WITHIN)
        child.kill()
        reader.join(5.0)
    if code is None:
        return LATE, N_(
            "the run did not end within {limit} s and was stopped; its last line: {last}", limit=f"{limit:.0f}", last=last[0]
        )
    if not (folder / "result.json").exists():
        return FAILED, N_("the run left no result.json: {last}", last=last[0])
    return DONE, ""


def _read(child: Child, last: list[str], say: Callable[[str], None]) -> None:
    """Send each line as it comes, however long that takes, while another thread keeps to the time limit."""
    for raw in child.lines():
        if raw is not None and (line := raw.decode("utf-8", "replace").rstrip()):
            last[0] = line
            say(line)


def _bundle(xpulab: Sequence[str], folder: Path, out: Path) -> str:
    """Bundle the run; returns why that cannot be done, "" when it was."""
    ran = run_child([*xpulab, "bundle", str(folder), "--out", str(out)], _BUNDLED_WITHIN)
    if ran.status == 0:
        return ""
    lines = [line.strip() for line in (ran.output + ran.errors).splitlines() if line.strip()]
    return lines[-1] if lines else _SILENT
