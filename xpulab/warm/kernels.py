"""Warm kernels: a kernelspec whose kernels are workers of a fork server that has imported everything (xpulab.warm).

    python -m xpulab.warm papermill -k xpulab-warm notebooks/01_sft.ipynb out.ipynb
    python -m xpulab.warm pytest --nbval --nbval-kernel-name xpulab-warm notebooks
    python -m xpulab.warm jupyter lab

What Jupyter starts is a client of a few milliseconds. It asks the fork server for a kernel, forwards the signals that it
gets to the kernel's group, and ends as the kernel ends; when it is killed, or the process that started it ends, the kernel's
group is killed. So a kernel manager treats it as any other kernel. Without a fork server the client becomes a cold kernel,
and writes so to the kernel's log. Signals take a moment longer than to a cold kernel: an interrupt that is sent between two
cells may reach the second.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from xpulab import warm

NAME = "xpulab-warm"
"""The kernelspec's name, for papermill -k, nbval --nbval-kernel-name and JupyterLab's launcher."""

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_LOOK_MILLISECONDS = 1000
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Neither site-packages nor the notebook's folder: the client needs the standard library only, and starts twice as fast.
_CLIENT = f"import sys; sys.path.append({_ROOT!r}); from xpulab.warm.kernels import client; client(sys.argv[1:])"


def install(data_folder: str | os.PathLike[str]) -> str:
    """Write the kernelspec below a Jupyter data folder (PREFIX/share/jupyter, or one of JUPYTER_PATH); returns its folder."""
    folder = os.path.join(data_folder, "kernels", NAME)
    spec = {
        "argv": [sys.executable, "-I", "-S", "-c", _CLIENT, "-f", "{connection_file}"],
        "display_name": "Python 3 (xpulab, warm)",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"debugger": True},
    }
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
        json.dump(spec, file, indent=1)
    return folder


def environment(fork_server: warm.ForkServer, base: Mapping[str, str]) -> dict[str, str]:
    """The variables of `base` with those that make Jupyter find the kernelspec, and the kernelspec this fork server."""
    install(fork_server.folder)
    path = os.pathsep.join(filter(None, (fork_server.folder, base.get("JUPYTER_PATH"))))
    return {**base, "JUPYTER_PATH": path, warm.ADDRESS: fork_server.address}


def run_command(command: Sequence[str], preload: Sequence[str] = warm.PRELOAD) -> int:
    """Run a command with a fork server, where Jupyter finds the warm kernel; returns its exit code once no kernel is left.

    SIGTERM and SIGHUP are forwarded to it; SIGINT comes from a terminal to both, and is left to the command.
    """
    import subprocess

    if not command:
        print("usage: python -m xpulab.warm COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    started: list[subprocess.Popen] = []
    asked: list[int] = []

    def forward(number: int, _: object) -> None:
        asked.append(number)
        deliver()

    def deliver() -> None:
        while started and asked:
            with contextlib.suppress(IndexError):  # a handler that came in between took it
                started[0].send_signal(asked.pop(0))

    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    with warm.ForkServer(preload) as fork_server:
        try:
            started.append(subprocess.Popen(command, env=environment(fork_server, os.environ)))
        except OSError as error:
            print(f"xpulab: {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        deliver()
        status = started[0].wait()
    return status if status >= 0 else 128 - status


def client(arguments: Sequence[str]) -> None:
    """Be the kernel that Jupyter sees; `arguments` are those of ipykernel. Does not return."""
    starter = os.getppid()
    if starter == 1 and os.environ.get("JPY_PARENT_PID", "1") != "1":  # it has ended already, and init adopted this process
        sys.exit(1)
    wake, waker = socket.socketpair()
    wake.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    for number in _FORWARDED:
        signal.signal(number, lambda *_: None)
    try:
        kernel = _fork(arguments)
    except (warm.ForkServerGone, TimeoutError) as error:
        print(f"{NAME}: {error}: this kernel starts cold", file=sys.stderr, flush=True)
        signal.set_wakeup_fd(-1)
        os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *arguments])
    status = _forward_until_end(kernel, wake, starter)
    kernel.close()
    if status < 0:
        _end_by(-status)
    os._exit(status)


def run_kernel(payload: bytes) -> None:
    """In a worker: be an ipykernel; payload: its arguments as JSON."""
    import importlib.util
    import logging

    import ipykernel.kernelapp

    sys.argv[:] = [importlib.util.find_spec("ipykernel_launcher").origin, *json.loads(payload)]
    sys.path.remove("")  # IPython puts it where it belongs
    logs = {sys.stdout: [], sys.stderr: []}
    for handler in filter(None, (reference() for reference in logging._handlerList)):
        logs.get(getattr(handler, "stream", None), []).append(handler)
    app = ipykernel.kernelapp.IPKernelApp.instance(parent_handle=os.getppid())  # a default that it reads at its import
    app.initialize()
    for handlers, stream in zip(
        logs.values(), (sys.stdout, sys.stderr), strict=True
    ):  # now the kernel's, which go into the notebook
        for handler in handlers:
            handler.setStream(stream)
    if matplotlib := sys.modules.get("matplotlib"):  # reads the variable, which the kernel has set, at its import
        matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
    app.start()


def _fork(arguments: Sequence[str]) -> warm.Worker:
    address = os.environ.get(warm.ADDRESS)
    if not address:
        raise warm.ForkServerGone(f"{warm.ADDRESS} is not set; `python -m xpulab.warm COMMAND` sets it")
    return warm.fork(
        address,
        "xpulab.warm.kernels:run_kernel",
        json.dumps(list(arguments)).encode(),
        environment=os.environ,
        cwd=os.getcwd(),
        stdout=1,
        stderr=2,
    )


def _forward_until_end(kernel: warm.Worker, wake: socket.socket, starter: int) -> int:
    """Forward signals until the kernel has ended; returns its status. When the starter ends, so does the kernel."""
    pidfd = _end_of(starter)
    poll = select.poll()
    for watched in (kernel, wake, *([] if pidfd is None else [pidfd])):
        poll.register(watched, select.POLLIN)
    while (status := kernel.poll()) is None:
        ready = {fd for fd, _ in poll.poll(_LOOK_MILLISECONDS if pidfd is None else None)}
        if os.getppid() != starter:
            return 1  # as ipykernel exits when its own watch of the starter sees it
        if wake.fileno() in ready:
            for number in wake.recv(4096):
                kernel.send_group_signal(number)
    return status


def _end_of(starter: int) -> int | None:
    """A descriptor that can be read once the process has ended."""
    try:
        return os.pidfd_open(starter)
    except OSError:  # it has just ended, or the system is older than Linux 5.3
        return None


def _end_by(number: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the kernel has left one already, if any
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    signal.pause()
