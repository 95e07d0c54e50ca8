"""An sshd that is three nodes, and the end of a fleet run by a signal."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
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


@pytest.fixture(scope="module")
def ssh_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A configuration of ssh in which node1 to node3 are this machine, and node4 refuses connections."""
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
    command = ["setpriv", "--pdeathsig", "KILL", program, "-D", "-e", "-f", str(folder / "sshd.conf")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as daemon:
        assert any(b"Server listening" in line for line in daemon.stderr), "sshd did not start"
        yield folder / "ssh.conf"
        daemon.terminate()


@pytest.fixture
def ended() -> Callable[[Sequence[str], Mapping[str, str], signal.Signals], tuple[int, str, str]]:
    """A function: a fleet command in this environment that gets a signal when a node runs; exit code, output, error output."""

    def run(command: Sequence[str], environment: Mapping[str, str], number: signal.Signals) -> tuple[int, str, str]:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=dict(environment), stdout=pipe, stderr=pipe, text=True) as process:
            assert any("running on" in line for line in process.stdout)
            process.send_signal(number)
            output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    return run
