"""papermill, nbval and Jupyter's own manager treat a warm kernel as any other, also when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import v4

from xpulab import warm
from xpulab.child import Child
from xpulab.warm import kernels

pytestmark = pytest.mark.integration

LOGS_WHEN_IMPORTED = "import logging\nlogger = logging.getLogger('early')\nlogger.addHandler(logging.StreamHandler())\n"
STATE = """
import json, os, signal, sys
import matplotlib.pyplot as plt
state = {
    "path": sys.path,
    "arguments": sys.argv[:-1],
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "backend": plt.get_backend(),
    "name": __name__,
    "main module": sys.modules["__main__"].__dict__ is globals(),
    "stdout": type(sys.stdout).__module__,
    "signals": {number: str(signal.getsignal(number)) for number in range(1, 32)},
}
state["environment"].pop("PYTEST_CURRENT_TEST", None)
print(json.dumps(state))
"""


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory):
    """A fork server that has imported ipykernel, matplotlib, and a module that keeps hold of stderr."""
    early = tmp_path_factory.mktemp("early")
    (early / "logs_early.py").write_text(LOGS_WHEN_IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(early))
        patch.setenv("PYTHONPATH", os.pathsep.join((str(early), os.environ.get("PYTHONPATH", ""))))
        running = warm.ForkServer(("ipykernel.ipkernel", "ipykernel.kernelapp", "matplotlib.pyplot", "logs_early"))
    with running:
        yield running


@pytest.fixture
def warm_environment(fork_server, monkeypatch):
    """From here on Jupyter finds the warm kernelspec, and the kernelspec the fork server."""
    for name, value in kernels.environment(fork_server.address, fork_server.folder, os.environ).items():
        monkeypatch.setenv(name, value)


class Kernel:
    """A kernel that Jupyter's own manager has started; what its process prints goes to a file."""

    def __init__(self, log: Path) -> None:
        self.manager = KernelManager(kernel_name=kernels.KERNELSPEC, transport="ipc", ip=f"{log}-ipc")
        self.log = log.open("wb")
        self.manager.start_kernel(stdout=self.log, stderr=self.log, cwd=str(log.parent))
        self.connect()

    def connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=100)

    @property
    def pid(self) -> int:
        """The kernel's process, which leads the group that the manager signals."""
        return self.manager.provisioner.pid

    def run(self, source: str, *during: Callable[[], None]) -> tuple[str, str, list[dict]]:
        """Run a cell: its reply's status or exception, its text, its outputs; during[n]() is called at its n-th text."""
        outputs = []

        def take(message: dict) -> None:
            outputs.append(message["content"])
            if "text" in message["content"] and len(texts()) <= len(during):
                during[len(texts()) - 1]()

        def texts() -> list[str]:
            return [output["text"] for output in outputs if "text" in output]

        reply = self.client.execute_interactive(source, output_hook=take, timeout=100)["content"]
        return reply.get("ename", reply["status"]), "".join(texts()), outputs

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.log.close()


@pytest.fixture
def kernel(warm_environment, tmp_path):
    """A warm kernel."""
    running = Kernel(tmp_path / "log")
    yield running
    running.end()


def numbers(kernel):
    """The kernel's own process, and one that it has started."""
    printed = kernel.run("import os, subprocess\nprint(os.getpid(), subprocess.Popen(['sleep', '1000']).pid)")[1]
    return [int(number) for number in printed.split()]


def test_its_state_is_that_of_a_cold_kernel(kernel, tmp_path, monkeypatch):
    monkeypatch.delenv("JUPYTER_PATH")
    own = Kernel(tmp_path / "cold.log")
    try:
        warm_state, cold_state = (json.loads(either.run(STATE)[1]) for either in (kernel, own))
    finally:
        own.end()
    del warm_state["environment"]["JUPYTER_PATH"]
    assert warm_state == cold_state


def test_a_log_that_was_set_up_before_the_fork_goes_into_the_notebook_while_its_cell_runs(kernel):
    _, _, outputs = kernel.run("import logs_early\nlogs_early.logger.error('early bird')\nprint('after')")
    printed = [(output["name"], output["text"]) for output in outputs if "text" in output]
    assert printed == [("stderr", "early bird\n"), ("stdout", "after\n")]


def test_an_interrupt_arrives_once(kernel):
    source = (
        "import signal, threading\n"
        "seen, over = [], threading.Event()\n"
        "signal.signal(signal.SIGINT, lambda *_: (seen.append(1), print('interrupted', flush=True)))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: over.set())\n"
        "print('in', flush=True)\n"
        "over.wait()\n"
        "print(len(seen))"
    )
    fence = partial(os.killpg, kernel.pid, signal.SIGUSR1)
    assert kernel.run(source, kernel.manager.interrupt_kernel, fence)[:2] == ("ok", "in\ninterrupted\n1\n")


def test_an_interrupt_reaches_what_the_cell_runs(kernel, gone):
    source = "import subprocess\nown = subprocess.Popen(['sleep', '1000'])\nprint(own.pid, flush=True)\nown.wait()"
    status, printed, _ = kernel.run(source, kernel.manager.interrupt_kernel)
    assert status == "KeyboardInterrupt"
    assert gone(int(printed))


@pytest.mark.parametrize("now", [True, False])
def test_shutting_it_down_ends_it_and_what_it_started(now, kernel, gone):
    own = numbers(kernel)
    kernel.manager.shutdown_kernel(now=now)
    assert all(map(gone, own))


def test_a_restart_gives_a_new_kernel(kernel, gone):
    before = numbers(kernel)
    kernel.client.stop_channels()
    kernel.manager.restart_kernel(now=True)
    kernel.connect()
    assert kernel.run("subprocess")[0] == "NameError"
    assert numbers(kernel)[0] not in before
    assert all(map(gone, before))


@pytest.mark.parametrize("last", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)"])
def test_it_is_seen_to_end_as_it_ended(last, kernel):
    kernel.client.execute(f"import os\n{last}")
    assert kernel.manager.provisioner.process.wait(60) == {"3)": 3, "9)": -9, "5)": -15}[last[-2:]]


def test_a_notebook_whose_fork_server_is_killed_has_a_dead_kernel(monkeypatch):
    with warm.ForkServer(("ipykernel.kernelapp",)) as fork_server:
        for name, value in kernels.environment(fork_server.address, fork_server.folder, os.environ).items():
            monkeypatch.setenv(name, value)
        source = f"import os, signal\nos.kill({fork_server.pid}, signal.SIGKILL)\nsignal.pause()"
        notebook = v4.new_notebook(cells=[v4.new_code_cell(source)])
        with pytest.raises(DeadKernelError):
            NotebookClient(notebook, kernel_name=kernels.KERNELSPEC, startup_timeout=100).execute()


@pytest.mark.parametrize("address", [None, "nothing is here"])
def test_without_a_fork_server_it_starts_cold_and_logs_it(address, tmp_path, monkeypatch):
    kernels.install(tmp_path)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.delenv(warm.ADDRESS, raising=False)
    if address:
        monkeypatch.setenv(warm.ADDRESS, str(tmp_path / address))
    cold = Kernel(tmp_path / "log")
    try:
        assert cold.run("import os\nprint(os.getpid())")[1] == f"{cold.pid}\n"
        assert cold.run("print('in')\nimport signal\nsignal.pause()", cold.manager.interrupt_kernel)[0] == "KeyboardInterrupt"
    finally:
        cold.end()
    first = (tmp_path / "log").read_text().splitlines()[0]
    assert first.startswith(f"{kernels.NAME}: ") and first.endswith(": this kernel starts cold")


@pytest.mark.parametrize(
    ("source", "end", "code", "printed"),
    [
        ("exit 3", None, 3, ""),
        ("kill -9 $$", None, 137, ""),
        ("trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.1; done", signal.SIGTERM, 5, "ready\ngot it\n"),
    ],
)
def test_a_command_with_a_fork_server_gives_its_exit_code_and_leaves_nothing(source, end, code, printed):
    run = "import sys; from xpulab.warm.kernels import run_command; sys.exit(run_command(sys.argv[1:], ('json',)))"
    command = ["sh", "-c", f'echo $XPULAB_WARM "$JUPYTER_PATH"; {source}']
    with Child([sys.executable, "-c", run, *command], stdout=subprocess.PIPE) as running:
        lines = filter(None, running.lines())
        address, path = next(lines).decode().split()
        assert path.split(os.pathsep)[0] == os.path.dirname(address)
        before = [next(lines)] if end else []
        if end:
            running.send_signal(end)
        assert (b"".join([*before, *lines]).decode(), running.wait(100)) == (printed, code)
    assert not os.path.exists(address)
