"""The kernels of one notebook under watch: interrupted at a time limit, killed a little later, and never left behind."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner
from jupyter_core.paths import jupyter_path

from xpulab.child import signal_group
from xpulab.messages import N_

START_SECONDS = 120
"""How long a kernel may take to start."""

_GRACE_SECONDS = 5.0
"""Between the interrupt and the kill."""

_RETURN_SECONDS = 30.0
"""papermill notices a killed kernel within seconds; after this long it never will."""

_SOCKET_PATH_BYTES = 90
"""Of a Unix socket's path 107 bytes are allowed; the kernel's manager appends to what it is given."""

_NEW_KERNEL = b"\nxpulab: from here on a new kernel of this notebook\n"
"""In the log."""


class Watchdog:
    """Watches the kernel of a notebook, and is the one place that knows why the notebook did not run to its end.

    The notebook has a time limit, which counts from its first kernel on, and a cell has a smaller one: one that never ends
    leaves time for what does not need it.

    cell: the code cell that runs, counted from 1; 0 before the first.
    reason: why the notebook was stopped or could not be run; None while it runs, and when it ran to its end.
    log: the file with what the kernel's process prints outside any cell (a crash in C++, for instance).
    """

    def __init__(self, limit_seconds: float, log: Path, cell_limit_seconds: float | None = None) -> None:
        """cell_limit_seconds: of each cell; None: as long as the notebook."""
        self.cell = 0
        self.log = log
        self.reason: str | None = None
        self._limit = limit_seconds
        self._cell_limit = limit_seconds if cell_limit_seconds is None else cell_limit_seconds
        self._group: int | None = None
        self._kernels = 0
        self._timers: list[threading.Timer] = []
        self._cell_timers: list[threading.Timer] = []
        self._cell_run = 0  # counts up when a cell starts and when it ends: a timer that is late itself finds another number
        self._is_late = False
        self._at_cell = threading.RLock()
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

        self._expect_kernel()
        threading.Thread(target=call, name=name, daemon=True).start()
        self._over.wait()
        if not returned.is_set():
            self.reason = N_(f"{self.reason}; papermill did not return from it")

    def kernel_started(self, pid: int) -> None:
        """The kernel leads a process group of its own; the notebook's time limit counts from its first one."""
        self._group = pid
        self._kernels += 1
        if self.reason is not None:  # stopped while it was starting, when there was nothing to interrupt yet
            self._signal(signal.SIGKILL)
        if self._kernels == 1:
            self._later(self._limit, self._time_is_up)

    def kernel_lost(self) -> None:
        """The kernel is of no use any more: what is left of its group is killed, and a new one is started."""
        self._signal(signal.SIGKILL)
        self._group = None
        self._expect_kernel()

    @property
    def is_first_kernel(self) -> bool:
        """Whether none has been started yet."""
        return self._kernels == 0

    def cell_started(self, number: int, is_limited: bool = True) -> None:
        """A code cell runs from now on, counted from 1. is_limited: whether it is stopped at its own time limit."""
        self.cell_ended()
        self.cell = number
        if is_limited and self._cell_limit < self._limit:
            with self._at_cell:
                run = self._cell_run
                self._cell_timers.append(_timer(self._cell_limit, lambda: self._cell_is_late(run)))

    def cell_ended(self) -> float | None:
        """The cell that ran is over; returns its time limit when it was stopped there, else None."""
        with self._at_cell:
            for timer in self._cell_timers:
                timer.cancel()
            self._cell_timers.clear()
            self._cell_run += 1
            late, self._is_late = self._is_late, False
        return self._cell_limit if late else None

    def peak_bytes(self) -> int:
        """The most memory that the kernel's process has had so far, without its ranks; 0 when that cannot be known."""
        try:
            status = Path(f"/proc/{self._group}/status").read_text(encoding="utf-8", errors="replace")
            return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
        except (OSError, ValueError, IndexError):
            return 0

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
        self.cell_ended()
        for timer in self._timers:
            timer.cancel()
        self._signal(signal.SIGKILL)
        self._group = None  # from here on the number may belong to another process

    def _time_is_up(self) -> None:
        of_cell = N_(f"cell {self.cell} had not ended after {self._limit:.0f} s")
        self.stop(of_cell if self.cell else N_(f"the kernel was not ready after {self._limit:.0f} s"))

    def _cell_is_late(self, run: int) -> None:
        """Interrupt the kernel, and kill it when the cell does not end from that."""
        with self._at_cell:
            if run == self._cell_run and self.reason is None:
                self._is_late = True
                self._signal(signal.SIGINT)
                self._cell_timers.append(_timer(_GRACE_SECONDS, lambda: self._cell_does_not_end(run)))

    def _cell_does_not_end(self, run: int) -> None:
        with self._at_cell:
            if run == self._cell_run:
                self._signal(signal.SIGKILL)

    def _expect_kernel(self) -> None:
        before = self._kernels

        def give_up() -> None:
            if self._kernels == before:
                self.stop(N_("no kernel was started"))

        self._later(START_SECONDS, give_up)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self._timers.append(_timer(seconds, action))

    def _signal(self, number: signal.Signals) -> None:
        if self._group is not None and not signal_group(self._group, number):
            self._group = None


def _timer(seconds: float, action: Callable[[], object]) -> threading.Timer:
    """Calls action() after so long, in a thread of its own, unless it is cancelled."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def kernel_manager(watchdog: Watchdog, scratch: str, environment: Mapping[str, str]) -> type[AsyncKernelManager]:
    """A kernel manager whose kernel is watched and keeps its temporary files and its sockets in the folder `scratch`.

    environment: the kernel's variables; they are read when it starts. A further kernel of the notebook goes on in the same log.
    Ports are chosen before the kernel binds them: when another process takes the one for output in between, the kernel
    neither answers nor ends. No other process takes a file of its own.
    """
    fits = len(os.fsencode(scratch)) <= _SOCKET_PATH_BYTES
    number = itertools.count(1)

    class Watched(AsyncKernelManager):
        def __init__(self, **options: object) -> None:
            name = f"{scratch}/{next(number)}"  # no new kernel meets the sockets of the one before it
            sockets = {"transport": "ipc", "ip": name} if fits else {}
            super().__init__(**{**sockets, "connection_file": f"{name}.json", **options})
            given = filter(None, environment.get("JUPYTER_PATH", "").split(os.pathsep))
            of_ipython = os.path.expanduser(environment.get("IPYTHONDIR") or "~/.ipython")
            self.kernel_spec_manager.kernel_dirs = [  # its default imports IPython to find the last one
                *(f"{folder}/kernels" for folder in given),
                *jupyter_path("kernels"),
                f"{of_ipython}/kernels",
            ]

        async def start_kernel(self, **options: object) -> None:  # type: ignore[override] # its decorator hides the async
            with watchdog.log.open("wb" if watchdog.is_first_kernel else "ab") as log:
                if not watchdog.is_first_kernel:
                    log.write(_NEW_KERNEL)
                    log.flush()
                await super().start_kernel(**options, env={**environment, "TMPDIR": scratch}, stdout=log, stderr=log)
            assert isinstance(self.provisioner, LocalProvisioner) and self.provisioner.pid is not None
            watchdog.kernel_started(self.provisioner.pid)

    return Watched
