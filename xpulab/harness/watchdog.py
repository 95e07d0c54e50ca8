"""The kernel of one notebook under watch: interrupted at a time limit, killed a little later, and never left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner
from jupyter_core.paths import jupyter_path

from xpulab.child import START, signal_group
from xpulab.messages import N_
from xpulab.warm import STARTS_OF_RANKS

_GRACE_SECONDS = 5.0
"""Between the interrupt and the kill."""

_RETURN_SECONDS = 30.0
"""nbclient notices a killed kernel within seconds; after this long it never will."""

_SOCKET_PATH_BYTES = 90
"""Of a Unix socket's path 107 bytes are allowed; the kernel's manager appends to what it is given."""

_NO_CODE_OF_CURRENT_FOLDER = "--InteractiveShellApp.ignore_cwd=True"
"""IPython else puts the kernel's folder, which is that of the run's command, before the installed packages."""


class Watchdog:
    """Watches the kernel of a notebook, and is the one place that knows why the notebook did not run to its end.

    cell: the code cell that runs, counted from 1; 0 before the first.
    reason: why the notebook was stopped or could not be run; None while it runs, and when it ran to its end.
    log: the file with what the kernel's process prints outside any cell (a crash in C++, for instance).
    starts: the file with the seconds that each start of its ranks took.
    """

    def __init__(self, limit_seconds: float, log: Path) -> None:
        """limit_seconds: how long the notebook may take from its kernel's start on, without the starts of its ranks."""
        self.cell = 0
        self.starts: Path | None = None
        self.log = log
        self.reason: str | None = None
        self._limit = limit_seconds
        self._granted = 0.0
        self._group: int | None = None
        self._timers: list[threading.Timer] = []
        self._over = threading.Event()

    def run(self, execute: Callable[[], None], name: str) -> None:
        """Call execute() in a thread; returns when it does, or some time after its kernel was killed."""
        returned = threading.Event()

        def call() -> None:
            try:
                execute()
            finally:
                returned.set()
                self._over.set()

        threading.Thread(target=call, name=name, daemon=True).start()
        self._over.wait()
        if not returned.is_set():
            self.reason = N_("{reason}; nbclient did not return from it", reason=self.reason)

    def kernel_started(self, pid: int) -> None:
        """The kernel leads a process group of its own; the notebook's time limit counts from now on."""
        self._group = pid
        if self.reason is not None:  # stopped while it was starting, when there was nothing to interrupt yet
            self._signal(signal.SIGKILL)
        self._later(self._limit, self._time_is_up)

    def stop(self, reason: str) -> None:
        """Interrupt the kernel, so that its cell shows where it stood; kill it when that does not help."""
        if self.reason is None:
            self.reason = reason
            self._signal(signal.SIGINT)
            self._later(_GRACE_SECONDS, lambda: self._signal(signal.SIGKILL))
            self._later(_GRACE_SECONDS + _RETURN_SECONDS, self._over.set)

    def ended(self, reason: str) -> None:
        """The notebook ended by itself before its last cell, for this reason; what stopped it before counts more."""
        if self.reason is None:
            self.reason = reason

    def close(self) -> None:
        """The notebook is done: whatever its kernel left running is killed."""
        for timer in self._timers:
            timer.cancel()
        self._signal(signal.SIGKILL)
        self._group = None  # from here on the number may belong to another process

    def _time_is_up(self) -> None:
        starts = self.starts.read_text(encoding="utf-8").split() if self.starts and self.starts.exists() else []
        if (more := sum(map(float, starts)) - self._granted) > 0:
            self._granted += more
            self._later(more, self._time_is_up)
            return
        of_cell = N_("cell {cell} had not ended after {limit} s", cell=self.cell, limit=f"{self._limit:.0f}")
        self.stop(of_cell if self.cell else N_("the kernel was not ready after {limit} s", limit=f"{self._limit:.0f}"))

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _signal(self, number: signal.Signals) -> None:
        if self._group is not None and not signal_group(self._group, number):
            self._group = None


def kernel_manager(watchdog: Watchdog, scratch: str, environment: Mapping[str, str]) -> type[AsyncKernelManager]:
    """A kernel manager whose kernel is watched and keeps its temporary files and its sockets in the folder `scratch`.

    environment: the kernel's variables.
    Ports are chosen before the kernel binds them: when another process takes the one for output in between, the kernel
    neither answers nor ends. No other process takes a file of its own.
    """
    fits = len(os.fsencode(scratch)) <= _SOCKET_PATH_BYTES

    class Watched(AsyncKernelManager):
        def __init__(self, **options: object) -> None:
            name = f"{scratch}/kernel"
            sockets = {"transport": "ipc", "ip": name} if fits else {}
            super().__init__(**{**sockets, "connection_file": f"{name}.json", **options})
            given = filter(None, environment.get("JUPYTER_PATH", "").split(os.pathsep))
            folders = [*(f"{folder}/kernels" for folder in given), *jupyter_path("kernels")]
            self.kernel_spec_manager.kernel_dirs = folders  # its default imports IPython, for one more

        def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
            command = super().format_kernel_cmd([*(extra_arguments or ()), _NO_CODE_OF_CURRENT_FOLDER])
            return [START if word == "-m" else word for word in command]

        async def start_kernel(self, **options: object) -> None:  # type: ignore[override] # its decorator hides the async
            watchdog.starts = Path(scratch, "starts-of-ranks")
            own = {"TMPDIR": scratch, STARTS_OF_RANKS: str(watchdog.starts)}
            with watchdog.log.open("wb") as log:
                await super().start_kernel(**options, env={**environment, **own}, stdout=log, stderr=log)
            assert isinstance(self.provisioner, LocalProvisioner) and self.provisioner.pid is not None
            watchdog.kernel_started(self.provisioner.pid)

    return Watched
