"""A real Slurm on this machine, without systemd: munged, slurmctld and a slurmd for each of three nodes.

Slurm's multiple-slurmd build, which Debian's package slurm-wlm has, runs several nodes on one host. They share its cores and
its files, so a test gives a node what others lack by variables: Cluster.give. The daemons end with pytest, however it ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

NODES = ("node1", "node2", "node3")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scontrol")
_STARTS_WITHIN = 60.0

_CONF = """
ClusterName=lab
SlurmctldHost=localhost
SlurmctldPort={ctld_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
SelectType=select/cons_tres
ReturnToService=1
SlurmdTimeout=20
MessageTimeout=10
KillWait=5
InactiveLimit=0
MpiDefault=none
{more}
NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports} CPUs=2 RealMemory=2000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""

_TASK_PROLOG = """#!/bin/sh
[ -f "{folder}/env-$SLURMD_NODENAME" ] && sed 's/^/export /' "{folder}/env-$SLURMD_NODENAME"
true
"""
"""Slurm adds the lines "export NAME=value" that it prints to the environment of each task of this node."""


def missing() -> list[str]:
    """The programs that this machine lacks; /usr/sbin may be missing in PATH."""
    return [name for name in PROGRAMS if _program(name) is None]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


@dataclass
class Cluster:
    """folder: its configuration, state and logs. environment: of commands that shall talk to it (SLURM_CONF)."""

    folder: Path
    environment: Mapping[str, str]
    _slurmd: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *command: str, timeout: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm, or any that calls them; more: further variables."""
        environment = {**self.environment, **more}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)

    def give(self, node: str, **variables: str) -> None:
        """Give the tasks of a node these variables, and no longer those of an earlier call."""
        path = self.folder / f"env-{node}"
        path.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))

    def state(self, node: str) -> str:
        """As sinfo shows it, "idle" or "drained" for instance."""
        return self._shown(node).rstrip("*~#")

    def _shown(self, node: str) -> str:
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%T").stdout.strip()

    def reason(self, node: str) -> str:
        """Why a node is drained or down; "none" when it is not."""
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%500E").stdout.strip()

    def stop_slurmd(self, node: str) -> None:
        """Kill the daemon of a node, as a crash of the node would."""
        if daemon := self._slurmd.pop(node, None):
            daemon.kill()
            daemon.wait(20)

    def start_slurmd(self, node: str) -> None:
        """Start the daemon of a node."""
        if node not in self._slurmd:
            self._slurmd[node] = _start(("slurmd", "-D", "-N", node), self.environment)

    def restore(self) -> None:
        """Make all nodes usable again, without jobs and variables of a test."""
        self.run("scancel", "--full", "--user", str(os.getuid()))
        for node in NODES:
            (self.folder / f"env-{node}").unlink(missing_ok=True)
            if self.state(node) != "idle":  # "completing" ends only so when the daemon was killed before its job had ended
                self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=restored")
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            self.start_slurmd(node)
        for node in NODES:
            self.wait_until_idle(node)

    def wait_until_idle(self, node: str) -> None:
        """Wait until a node can be used, and answers. Raises AssertionError with what Slurm says of it."""
        until = time.monotonic() + _STARTS_WITHIN
        while (shown := self._shown(node)) != "idle":
            assert time.monotonic() < until, f"{node} is {shown}: {self.reason(node)}"
            if shown == "mixed":  # sinfo 22.05 goes on to show a job that has ended, until scontrol asks
                self.run("scontrol", "show", "node", node)
            if shown.startswith(("down", "drained")):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            time.sleep(0.2)


@contextmanager
def cluster(folder: Path, more: str = "") -> Iterator[Cluster]:
    """A cluster of three nodes below a new folder; more: further lines of slurm.conf. It ends with the block."""
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    munge, ports = folder / "munge.socket", _free_ports(1 + len(NODES))
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    (folder / "task_prolog").write_text(_TASK_PROLOG.format(folder=folder))
    (folder / "task_prolog").chmod(0o755)
    node_ports = ",".join(str(port) for port in ports[1:])
    fields = {"ctld_port": ports[0], "user": user, "munge": munge, "folder": folder, "more": more}
    (folder / "slurm.conf").write_text(_CONF.format(nodes="node[1-3]", ports=f"[{node_ports}]", **fields))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", ""), "/usr/sbin", "/sbin"])
    running = Cluster(folder, environment)
    with ExitStack() as stack:
        stack.callback(_end, _start_munged(folder, munge, environment))
        stack.callback(_end, _start(("slurmctld", "-D"), environment))
        for node in NODES:
            stack.callback(running.stop_slurmd, node)
            running.start_slurmd(node)
        for node in NODES:
            running.wait_until_idle(node)
        stack.callback(running.run, "scancel", "--full", "--user", str(os.getuid()))
        yield running


def _start(command: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A daemon in the foreground, which the kernel ends with this process."""
    words = ["setpriv", "--pdeathsig", "KILL", str(_program(command[0])), *command[1:]]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, env=dict(environment), start_new_session=True, **quiet)


def _start_munged(folder: Path, munge: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = {"socket": munge, "key-file": key, "pid-file": folder / "munged.pid", "log-file": folder / "munged.log"}
    options = [f"--{name}={path}" for name, path in {**files, "seed-file": folder / "munged.seed"}.items()]
    daemon = _start(("munged", "--foreground", "--force", *options), environment)
    until = time.monotonic() + _STARTS_WITHIN
    while not munge.exists():
        assert daemon.poll() is None and time.monotonic() < until, "munged did not start"
        time.sleep(0.05)
    return daemon


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
