"""Warm kernels: the kernelspec python3, with kernels that are workers of a fork server that has imported everything.

The kernelspec names a kernel provisioner, the part of jupyter_client that starts and signals a kernel's process. A Jupyter
tool finds it by the entry point in pyproject.toml, so xpulab must be installed beside the tool. The tool's process holds the
connection to the worker: when it ends, the worker's process group is killed. Without a fork server the kernel starts cold,
and writes so to its log.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from xpulab import warm
from xpulab.child import python_module

NAME = "xpulab-warm"
"""The name of the provisioner."""

KERNELSPEC = "python3"
"""The one that the committed notebooks name; Jupyter takes ours in its place."""

_POLL_SECONDS = 0.1
_COLD = python_module("ipykernel_launcher")


class Provisioner(LocalProvisioner):
    """Starts a kernel as a worker of the fork server whose address the kernel's environment holds, else cold.

    pid: the kernel's process, which leads a process group of its own. process: a warm.Worker, or a subprocess.Popen.
    """

    process: Any

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        """cmd: that of a cold kernel. options: as of subprocess.Popen; a worker takes env, cwd, and files for its output."""
        try:
            self.process = await asyncio.to_thread(_fork, cmd, options)  # it may wait until the fork server has imported
        except (warm.ForkServerGone, TimeoutError) as error:
            os.write(_descriptor(options.get("stderr"), 2), f"{NAME}: {error}: this kernel starts cold\n".encode())
            return await super().launch_kernel(cmd, **options)
        self.pid = self.pgid = self.process.pid
        return self.connection_info

    async def wait(self) -> int | None:
        """Wait for the kernel's end, and kill what is left of its process group; returns its exit status."""
        kernel = self.process
        if not isinstance(kernel, warm.Worker):
            return await super().wait()
        while (status := kernel.poll()) is None:
            await asyncio.sleep(_POLL_SECONDS)
        kernel.close()
        self.process = None
        return status


def install(data_folder: str | os.PathLike[str]) -> str:
    """Write the kernelspec below a Jupyter data folder (one of JUPYTER_PATH); returns its folder."""
    folder = os.path.join(data_folder, "kernels", KERNELSPEC)
    spec = {
        "argv": [*_COLD, "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"debugger": True, "kernel_provisioner": {"provisioner_name": NAME}},
    }
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
        json.dump(spec, file, indent=1)
    return folder


def environment(address: str, folder: str | os.PathLike[str], base: Mapping[str, str]) -> dict[str, str]:
    """The variables of `base` with those that make Jupyter find the kernelspec, and the kernelspec this fork server.

    address: of the fork server. folder: gets the kernelspec.
    In this process the kernelspec works also where xpulab is not installed, but found by PYTHONPATH.
    """
    install(folder)
    entry = EntryPoint(NAME, f"{__name__}:{Provisioner.__name__}", KernelProvisionerFactory.GROUP_NAME)
    KernelProvisionerFactory.provisioners.setdefault(NAME, entry)
    path = os.pathsep.join(filter(None, (os.fspath(folder), base.get("JUPYTER_PATH"))))
    return {**base, "JUPYTER_PATH": path, warm.ADDRESS: address}


def run_command(command: Sequence[str], preload: Sequence[str] = warm.PRELOAD) -> int:
    """Run a command with a fork server, where Jupyter finds warm kernels; returns its exit code once no kernel is left.

    SIGTERM and SIGHUP are forwarded to it; SIGINT comes from a terminal to both, and is left to the command.
    Raises InputError, and runs nothing, where the wheel of a GPU or an XPU would be imported before kernels are forked.
    """
    early: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: early.append(number))
    with warm.ForkServer(preload) as fork_server:
        try:
            process = subprocess.Popen(command, env=environment(fork_server.address, fork_server.folder, os.environ))
        except OSError as error:
            print(f"xpulab: {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: process.send_signal(number))
        for arrived in early:  # before the command was there
            process.send_signal(arrived)
        status = process.wait()
    return status if status >= 0 else 128 - status


def _fork(cmd: Sequence[str], options: Mapping[str, Any]) -> warm.Worker:
    environment = {**options["env"], "JPY_PARENT_PID": str(os.getpid())}  # as a cold kernel gets it
    address = environment.get(warm.ADDRESS)
    if not address:
        raise warm.ForkServerGone(f"{warm.ADDRESS} is not set; `xpulab lab` sets it")
    return warm.fork(
        address,
        "xpulab.warm.kernel:run",
        json.dumps(cmd[len(_COLD) :]).encode(),
        environment=environment,
        cwd=options.get("cwd") or os.getcwd(),
        stdout=_descriptor(options.get("stdout"), 1),
        stderr=_descriptor(options.get("stderr"), 2),
    )


def _descriptor(stream: Any, default: int) -> int:
    """The file descriptor of a stream as subprocess.Popen takes it; for what is no file the default."""
    if isinstance(stream, int):
        return stream if stream >= 0 else default  # subprocess.PIPE and DEVNULL are negative
    return default if stream is None else stream.fileno()
