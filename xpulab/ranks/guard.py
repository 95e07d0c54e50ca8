"""The process between a notebook and paddle.distributed.launch: whatever happens, it leaves nothing running.

Every process that the launcher or a rank leaves behind becomes its child. It ends them all, and then itself, when the
launcher has ended, when the notebook closes its standard input, and when the notebook has ended. It imports the standard
library, psutil and xpulab.child only.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys

import psutil

from xpulab.child import adopt_orphans, end_with_parent


def main(notebook: str, folder: str, *command: str) -> int:
    """Run the command until it ends or standard input does; returns its exit status.

    notebook: the process id of the notebook. folder: the run's, removed when the notebook is not there to do it.
    """
    adopt_orphans()
    end_with_parent(signal.SIGTERM)  # should a copy of standard input's other end outlive the notebook
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)
    orphaned = False
    while launcher.poll() is None and os.getppid() == int(notebook):
        ready, _, _ = select.select([sys.stdin.fileno(), woken], [], [])
        if woken not in ready:
            orphaned = not os.read(sys.stdin.fileno(), 1)  # a notebook that dies closes it before it stops being the parent
            break
        woken.recv(4096)
    status = launcher.returncode
    end_children()
    if orphaned or os.getppid() != int(notebook):
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if status is None else status


def end_children() -> None:
    """Kill and reap all that descends from this process, until there is nothing left."""
    while True:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
