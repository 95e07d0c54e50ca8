"""What a node does in a fleet run: run, bundle on its own disk, deliver; and say what went wrong, whatever it was.

Everything is written below a scratch folder of the node, and the bundle appears in the shared folder whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xpulab.child import Child
from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.fleet.cluster.messages import Ended, Message, Started, parts_of
from xpulab.messages import N_
from xpulab.records.record import RED

SCRATCH = "XPULAB_SCRATCH"
"""The variable that names a node's scratch folder; without it TMPDIR does, else it is /tmp."""

ROOM = 64 * 2**20
"""Bytes that must be free there: a run of all notebooks at level smoke leaves 5 MiB, at level standard about 30."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
_LAST_LINES = 20
_ENDS_WITHIN = 20.0
"""Seconds that a run has after Ctrl-C to report what has finished."""


@dataclass(frozen=True)
class Task:
    """node: the name that the fleet has for this node. run: the command of the run, to which --out is added.

    limit: seconds that the run may take. shared: the folder for the bundle; None sends it through standard output.
    """

    node: str
    run: tuple[str, ...]
    limit: float
    shared: Path | None


@dataclass(frozen=True)
class _Ran:
    """code: the exit code, None when the run was stopped at its limit. lines: its last ones."""

    code: int | None
    lines: tuple[str, ...]

    @property
    def last(self) -> str:
        return next((line.strip() for line in reversed(self.lines) if line.strip()), "it printed nothing")


class _NoRoom(Exception):
    """The scratch folder cannot be written; the message says why."""


def run_task(task: Task, environ: Mapping[str, str], say: Callable[[Message], None], show: Callable[[str], None]) -> Ended:
    """Do the task. say: sends a message, show: a line of the run. Returns the last message, which was sent."""
    say(Started(socket.gethostname()))
    started = time.monotonic()
    outcome, sentence, code = "disk", "", None
    try:
        scratch = _scratch(environ)
        with tempfile.TemporaryDirectory(prefix=f"xpulab-{task.node}-", dir=scratch, ignore_cleanup_errors=True) as folder:
            outcome, sentence, code = _in_folder(task, Path(folder), environ, say, show)
    except _NoRoom as error:
        sentence = str(error)
    except OSError as error:
        sentence = N_(f"the scratch folder cannot be used: {error}")
    ended = Ended(outcome, sentence, code, round(time.monotonic() - started, 1))
    say(ended)
    return ended


def end_with(stream: int) -> None:
    """Stop this process, as Ctrl-C does, when the other end of a stream is closed. stream: its file descriptor."""

    def wait() -> None:
        while os.read(stream, 1 << 12):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def _scratch(environ: Mapping[str, str]) -> Path:
    """The scratch folder, which has room. Raises _NoRoom."""
    scratch = Path(environ.get(SCRATCH) or environ.get("TMPDIR") or "/tmp")
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=scratch) as probe:
            probe.write(bytes(1 << 20))
            probe.flush()
    except OSError as error:
        raise _NoRoom(
            N_(
                f"the scratch folder {scratch} cannot be written: {error.strerror}; free space there, or name another one in "
                f"{SCRATCH}"
            )
        ) from error
    free = shutil.disk_usage(scratch).free
    if free < ROOM:
        room = ROOM >> 20
        raise _NoRoom(
            N_(
                f"the scratch folder {scratch} is full: {free >> 20} MiB are free, {room} MiB are needed; free space there, or "
                f"name another one in {SCRATCH}"
            )
        )
    return scratch


def _in_folder(
    task: Task, folder: Path, environ: Mapping[str, str], say: Callable[[Message], None], show: Callable[[str], None]
) -> tuple[str, str, int | None]:
    """Outcome, sentence and exit code of a task whose files are below the folder."""
    ran = _run(task, folder / "run", show)
    late = (
        N_(f"the run did not end within {task.limit:.0f} s and was stopped; its last line: {ran.last}")
        if ran.code is None
        else ""
    )
    if not _has_result(folder / "run"):
        _scratch(environ)
        return ("late", late, None) if late else ("failed", N_(f"the run left no result.json: {ran.last}"), ran.code)
    file = folder / f"{task.node}.zip"
    try:
        bundle.write(*bundle.collect(folder / "run"), file)
    except InputError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_ROOM:
            raise _NoRoom(
                N_(f"the bundle cannot be written to the scratch folder {folder.parent}: {error.__cause__}")
            ) from error
        return "failed", str(error), ran.code
    if undelivered := _deliver(file, task, say):
        return "undelivered", "; ".join(filter(None, (late, undelivered, _verdict(folder / "run")))), ran.code
    return ("late", late, None) if late else ("done", "", ran.code)


def _has_result(folder: Path) -> bool:
    try:
        json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _verdict(folder: Path) -> str:
    """What a bundle that nobody gets would have said, in short."""
    result = json.loads((folder / "result.json").read_bytes())
    if result.get("green"):
        return N_("its run is green")
    red = [check["name"] for notebook in result["notebooks"] for check in notebook["checks"] if check["outcome"] in RED]
    if not red:
        return N_("its run is red: no check compared")
    names = ", ".join(red[:3])
    return N_(f"its run is red: {names}")


def _run(task: Task, out: Path, show: Callable[[str], None]) -> _Ran:
    """Run the notebooks; at the time limit, and when this process is stopped, the run and all its processes end."""
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    command = [*task.run, "--out", str(out)]
    try:
        child = Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return _Ran(127, (f"{shlex.join(command[:1])} cannot be started: {error.strerror}",))
    with child:
        reader = threading.Thread(target=_read, args=(child, lines, show), daemon=True)
        reader.start()
        code = child.wait(task.limit)
        if code is None:
            child.send_signal(signal.SIGINT)  # as a user would press Ctrl-C: xpulab run then reports what has finished
            child.wait(_ENDS_WITHIN)
        child.kill()
        reader.join(5.0)
    return _Ran(code, tuple(lines))


def _read(child: Child, lines: deque[str], show: Callable[[str], None]) -> None:
    """Show each line as it comes, however long that takes, while another thread keeps to the time limit."""
    for raw in child.lines():
        if raw is not None:
            lines.append(raw.decode("utf-8", "replace").rstrip("\n"))
            show(lines[-1])


def _deliver(file: Path, task: Task, say: Callable[[Message], None]) -> str:
    """Send the bundle; returns why it cannot be written to the shared folder, "" when it was."""
    if task.shared is None:
        for part in parts_of(file.read_bytes()):
            say(part)
        return ""
    unfinished = task.shared / f".{file.name}.{os.getpid()}"
    try:
        shutil.copyfile(file, unfinished)
        unfinished.replace(task.shared / file.name)
    except OSError as error:
        with contextlib.suppress(OSError):  # the folder cannot be reached at all
            unfinished.unlink(missing_ok=True)
        return N_(f"the bundle cannot be written to the shared folder {task.shared}: {error.strerror}")
    return ""
