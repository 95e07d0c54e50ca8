"""An sshd that is three nodes, and Ctrl-C of a fleet run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

_SSHD_CONF = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
"""
_SSH_CONF = """
Host node1 node2 node3
    HostName 127.0.0.1
    Port {port}
Host node4
    HostName 127.0.0.1
    Port {closed}
Host *
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking no
    LogLevel ERROR
"""


@dataclass(frozen=True)
class Sshd:
    """config: of ssh, in which node1 to node3 are this machine and node4 refuses connections. pid: of the daemon."""

    config: Path
    pid: int


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd on loopback with keys of its own."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    if program is None or shutil.which("ssh") is None:
        message = "needs sshd and ssh (Debian: openssh-server, openssh-client)"
        pytest.fail(message) if os.environ.get("XPULAB_TEST_SLURM") == "required" else pytest.skip(message)
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=30)
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in ports:
            each.bind(("127.0.0.1", 0))
        port, closed = (each.getsockname()[1] for each in ports)
    (folder / "sshd.conf").write_text(_SSHD_CONF.format(port=port, folder=folder))
    (folder / "ssh.conf").write_text(_SSH_CONF.format(port=port, closed=closed, folder=folder))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # for privilege separation, when no service has made it
    ends_with_pytest = ["setpriv", "--pdeathsig", "KILL"]
    command = [*ends_with_pytest, program, "-D", "-e", "-f", str(folder / "sshd.conf")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as daemon:
        try:
            for line in daemon.stderr:
                if b"Server listening" in line:
                    break
            else:
                pytest.fail("sshd did not start")
            yield Sshd(folder / "ssh.conf", daemon.pid)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(20)


@pytest.fixture
def interrupted() -> Callable[[Sequence[str], Mapping[str, str]], tuple[int, str, str]]:
    """A function: a fleet command in this environment that gets Ctrl-C when a node runs; exit code, output, error output."""

    def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=dict(environment), stdout=pipe, stderr=pipe, text=True) as process:
            try:
                for line in process.stdout:
                    if "running on" in line:
                        break
                process.send_signal(signal.SIGINT)
                output, errors = process.communicate(timeout=60)
            finally:
                process.kill()
        return process.returncode, output, errors

    return run
