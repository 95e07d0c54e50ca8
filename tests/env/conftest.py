"""A copy of the repository on a machine with a fake uv: environments are real, but nothing is installed into them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from xpulab.files import ROOT

# Records its arguments, runs the commands of the test, and performs editable installations like the real uv, with the command.
UV = """#!/bin/sh
if [ "$1" = --version ]; then echo "uv 0"; exit; fi
echo "$@" >> '{calls}'
. '{behaviour}'
while [ $# -gt 0 ]; do
    case $1 in --python) python=$2 ;; --editable) repository=$2 ;; esac
    shift
done
if [ "$repository" ]; then
    echo "$repository" > "$("$python" -c 'import site; print(site.getsitepackages()[0])')/repository.pth"
    printf '#!%s\\nimport runpy\\nrunpy.run_module("xpulab", run_name="__main__")\\n' "$python" > "${{python%/*}}/xpulab"
    chmod +x "${{python%/*}}/xpulab"
fi
"""
_OURS = ("OMP_NUM_THREADS", "PYTHONPATH", "XPULAB_VENV", "XPULAB_EXPECT")
"""Variables of this process that a command on that machine does not get."""


class Repository:
    """folder is the repository; PATH has a fake uv and python3, and the commands of the system; system stands for "/"."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repository"
        self.venv = self.folder / ".venv"
        self.bin = folder / "bin"
        self.calls_file = folder / "calls"
        self.behaviour = folder / "behaviour"
        shutil.copytree(ROOT / "env", self.folder / "env", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self.folder)
        self.write("xpulab/__init__.py", "")
        for name in ("errors.py", "devices.py", "child.py", "messages.py"):
            self.write(f"xpulab/{name}", (ROOT / "xpulab" / name).read_text())
        without_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "xpulab/doctor", self.folder / "xpulab/doctor", ignore=without_caches)
        shutil.copytree(ROOT / "notebooks", self.folder / "notebooks", ignore=shutil.ignore_patterns(".*", "zh"))
        self.system = folder / "system"
        self.system.mkdir()
        self.calls_file.touch()
        self.behaviour.touch()
        self.tool("uv", UV.format(calls=self.calls_file, behaviour=self.behaviour))
        self.tool("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for name in ("nvidia-smi", "xpu-smi", "xpu_smi"):  # not those of the machine that runs the tests
            self.tool(name, "#!/bin/sh\nexit 9\n")

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def tool(self, name: str, script: str) -> None:
        self.bin.mkdir(exist_ok=True)
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def card(self, vendor: str = "1d22", device: str = "3688", kind: str = "120000") -> None:
        """Put a card on the bus; by default a P800."""
        function = self.system / "sys/bus/pci/devices/0000:03:00.0"
        function.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            (function / name).write_text(f"0x{value}\n")

    def start(self, *command: str, **changed: str) -> subprocess.Popen[str]:
        """Starts a command on this machine; changed are environment variables."""
        inherited = {key: value for key, value in os.environ.items() if key not in _OURS}
        return subprocess.Popen(
            command,
            cwd=self.folder.parent,
            env={**inherited, "PATH": f"{self.bin}:/usr/bin:/bin", "XPULAB_SYSTEM_ROOT": str(self.system), **changed},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_make(self, *arguments: str, **changed: str) -> subprocess.Popen[str]:
        script = self.folder / "env/make_venv.py"
        return self.start(sys.executable, "-IS", str(script), *arguments, **changed)

    def make(self, *arguments: str, **changed: str) -> tuple[int, str]:
        """Runs make_venv.py to its end: exit code and standard error."""
        process = self.start_make(*arguments, **changed)
        _, printed = process.communicate()
        return process.returncode, printed

    @property
    def calls(self) -> list[str]:
        """The arguments of each call of the installer, in order."""
        return self.calls_file.read_text().splitlines()

    @property
    def marker(self) -> dict[str, str]:
        return json.loads((self.venv / "xpulab.json").read_text())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def made(repository: Repository) -> Repository:
    """A repository whose environment is ready, with an extra file that disappears when it is created again."""
    assert repository.make()[0] == 0
    (repository.venv / "stray").touch()
    repository.calls_file.write_text("")
    return repository


@pytest.fixture
def make_venv() -> ModuleType:
    """env/make_venv.py as a module of its own."""
    spec = importlib.util.spec_from_file_location("make_venv", ROOT / "env/make_venv.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
