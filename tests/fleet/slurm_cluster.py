"""A real Slurm on this machine, without systemd: munged, slurmctld and a slurmd for each of three nodes.

Slurm's multiple-slurmd build, which Debian's package slurm-wlm has, runs several nodes on one host. They share its cores and
its files, so a test gives a node what others lack by variables: Cluster.give.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

NODES = ("node1", "node2", "node3")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scontrol")
_STARTS_WITHIN = 30.0
_ENDED_WELL = b"ended"
"""As ends_daemons.py knows it."""

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

    def answers(self, node: str) -> bool:
        """Whether Slurm has an answer of the node's daemon: it asks some seconds after a daemon was stopped and goes on."""
        return "*" not in self._shown(node)

    def _shown(self, node: str) -> str:
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%T").stdout.strip()

    def reason(self, node: str) -> str:
        """Why a node is drained or down; "none" when it is not."""
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%500E").stdout.strip()

    def is_slurmd_running(self, node: str) -> bool:
        """Whether the daemon of a node runs."""
        pid = self._pid(node)
        return pid is not None and Path(f"/proc/{pid}").exists()

    def stop_slurmd(self, node: str) -> None:
        """Kill the daemon of a node, as a crash of the node would."""
        if (pid := self._pid(node)) is not None:
            _kill(pid)

    def start_slurmd(self, node: str) -> None:
        """Start the daemon of a node, and wait until Slurm may use the node."""
        if not self.is_slurmd_running(node):
            subprocess.run([str(_program("slurmd")), "-N", node], env=dict(self.environment), check=True, timeout=30)
        self.wait_for("idle", node)

    def freeze_slurmd(self, node: str) -> None:
        """Stop the daemon of a node without an end: it still accepts connections, and never answers. restore() ends this."""
        if (pid := self._pid(node)) is not None:
            os.kill(pid, signal.SIGSTOP)

    def _thaw_slurmd(self, node: str) -> None:
        if self.is_slurmd_running(node) and (pid := self._pid(node)) is not None:
            os.kill(pid, signal.SIGCONT)

    def restore(self) -> None:
        """Make all nodes usable again, without jobs and variables of a test."""
        for node in NODES:
            self._thaw_slurmd(node)
        self.run("scancel", "--full", "--user", str(os.getuid()))
        for node in NODES:
            (self.folder / f"env-{node}").unlink(missing_ok=True)
            if self.state(node) != "idle":  # "completing" ends only so when the daemon was killed before its job had ended
                self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=restored")
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        for node in NODES:
            self.start_slurmd(node)

    def wait_for(self, state: str, node: str) -> None:
        """Wait until a node has this state, and answers if that is idle. Raises AssertionError with what Slurm says of it."""
        until = time.monotonic() + _STARTS_WITHIN
        while (shown := self.state(node)) != state or (state == "idle" and not self.answers(node)):
            assert time.monotonic() < until, f"{node} is {shown}, not {state}: {self.reason(node)}"
            if shown == "mixed":  # sinfo 22.05 goes on to show a job that has ended, until scontrol asks
                self.run("scontrol", "show", "node", node)
            if shown in ("down", "drained"):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            time.sleep(0.2)

    def _pid(self, node: str) -> int | None:
        path = self.folder / f"slurmd-{node}.pid"
        return int(path.read_text()) if path.exists() else None


@contextmanager
def cluster(folder: Path, more: str = "") -> Iterator[Cluster]:
    """A cluster of three nodes below a new folder; more: further lines of slurm.conf. It ends with the block.

    When this process is killed in the block, the cluster and its jobs end too, and the folder is removed.
    """
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    munge = folder / "munge.socket"
    ports = _free_ports(1 + len(NODES))
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    _executable(folder / "task_prolog", _TASK_PROLOG.format(folder=folder))
    conf = folder / "slurm.conf"
    node_ports = ",".join(str(port) for port in ports[1:])
    fields = {"ctld_port": ports[0], "user": user, "munge": munge, "folder": folder, "more": more}
    conf.write_text(_CONF.format(nodes="node[1-3]", ports=f"[{node_ports}]", **fields))
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", ""), "/usr/sbin", "/sbin"])
    with ended_with_this_process(f"SLURM_CONF={conf}", folder), ExitStack() as stack:
        _start_munged(folder, munge, environment, stack)
        subprocess.run([str(_program("slurmctld"))], env=environment, check=True, timeout=30)
        stack.callback(_kill_of, folder / "slurmctld.pid")
        running = Cluster(folder, environment)
        for node in NODES:
            stack.callback(_kill_of, folder / f"slurmd-{node}.pid")
            subprocess.run([str(_program("slurmd")), "-N", node], env=environment, check=True, timeout=30)
        for node in NODES:
            running.wait_for("idle", node)
        stack.callback(running.run, "scancel", "--full", "--user", str(os.getuid()))
        yield running


@contextmanager
def ended_with_this_process(entry: str, folder: Path) -> Iterator[None]:
    """When this process is killed in the block, processes with the entry in their environment end, and the folder is removed.

    entry: "NAME=value". What the block starts it ends itself when it ends.
    """
    command = [sys.executable, "-S", str(Path(__file__).with_name("ends_daemons.py")), entry, str(folder)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd="/", env={}, start_new_session=True, **streams) as watcher:
        try:
            yield
        finally:
            watcher.communicate(_ENDED_WELL, timeout=30)


def _start_munged(folder: Path, munge: Path, environment: Mapping[str, str], stack: ExitStack) -> None:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = {"socket": munge, "key-file": key, "pid-file": folder / "munged.pid", "log-file": folder / "munged.log"}
    options = [f"--{name}={path}" for name, path in {**files, "seed-file": folder / "munged.seed"}.items()]
    command = [str(_program("munged")), "--force", *options]
    subprocess.run(command, env=dict(environment), check=True, capture_output=True, timeout=30)
    stack.callback(_kill_of, folder / "munged.pid")


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _kill_of(path: Path) -> None:
    if path.exists():
        _kill(int(path.read_text()))


def _kill(pid: int) -> None:
    """Kill a process, also a stopped one, and wait until it is gone."""
    try:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        for _ in range(50):
            time.sleep(0.1)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
