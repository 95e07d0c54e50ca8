"""What the workers of the tests run. The fork server is started without this folder on its path; PYTHONPATH has it."""

from __future__ import annotations

import atexit
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time


def describe(payload):
    """All that a worker has of its own, as JSON."""
    print(
        json.dumps(
            {
                "environment": dict(os.environ),
                "seen by a child of it": subprocess.run(["env"], capture_output=True, text=True, check=True).stdout,
                "cwd": os.getcwd(),
                "path": sys.path,
                "argv": sys.argv,
                "stdin": sys.stdin.read(),
                "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],  # without the one that lists the folder
                "threads": len(os.listdir("/proc/self/task")),
                "ids": [os.getpid(), os.getpgrp(), os.getsid(0), os.getppid()],
                "handled": [number for number in range(1, 65) if signal.getsignal(number) not in (signal.SIG_DFL, None)],
                "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
                "random": random.random(),
                "temporary": tempfile.gettempdir(),
                "hour": time.localtime(0).tm_hour,
                "payload": len(payload),
            }
        )
    )


def run(payload):
    """Run Python source; what is printed at the end depends on how the worker ends."""
    exec(payload.decode(), globals())


def end_late(payload):
    """Leave work for the end: a thread, a function at exit, and text that was not flushed."""
    sys.stdout.reconfigure(line_buffering=False)
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (select.select([], [], [], 0.05), print("thread"))).start()
    print("entry")


def wait(payload):
    """Start a child process in its group, print its process id, and wait for ever."""
    own = subprocess.Popen(["sleep", "1000"])
    print(own.pid, flush=True)
    while True:
        signal.pause()


def leave_a_child(payload):
    """End, but leave a child running in the group."""
    print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)


def environment_at_import(payload):
    """The fork server's environment while it imported."""
    import remembers_environment

    print(json.dumps(remembers_environment.SEEN))
