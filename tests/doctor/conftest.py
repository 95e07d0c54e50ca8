"""What the doctor is tried on: a machine made of files, and a copy of this environment that a test breaks.

The machine is a root folder with PCI functions and device nodes, and a PATH with fake tools.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from xpulab import files
from xpulab.records import environments

FORMATS = Path(__file__).parent / "formats"
NVML = Path(__file__).parent / "nvml"
A100 = {
    **{"name": "NVIDIA A100-SXM4-80GB", "bus": "00000000:17:00.0", "serial": "1564720081234"},
    **{"memory": {"total": 81920 << 20, "used": 1043 << 20}, "temperature": 36, "milliwatts": 61420},
}
"""What NVML says of a card."""
INSTALLED = Path(sysconfig.get_path("purelib"))


class Machine:
    """root stands for "/"; tools are shell scripts in the only folder on PATH."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.bin = folder / "bin"
        self.calls = folder / "calls"
        self.said = folder / "nvml.json"
        (self.root / "dev").mkdir(parents=True)
        self.bin.mkdir()

    def pci(self, address: str, vendor: str, device: str, kind: str = "120000") -> None:
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            (folder / name).write_text(f"0x{value}\n")

    def nodes(self, *names: str) -> None:
        for name in names:
            (self.root / "dev" / name).touch(mode=0o666)

    def file(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def nvml(self, *cards: object, **said: object) -> None:
        """NVIDIA's tool is on PATH, and its library says this: see nvml/pynvml.py."""
        self.tool("nvidia-smi", "exit 9")
        self.said.write_text(json.dumps({"driver": "550.127.05", "cards": cards, **said}))

    def answering(self, name: str, answers: dict[str, str]) -> None:
        """A tool that prints the file of tests/doctor/formats by its options, and refuses every other option."""
        cases = "".join(f'"{options}") exec /bin/cat {FORMATS / file};;\n' for options, file in answers.items())
        self.tool(name, f'echo "$*" >> {self.calls}\ncase "$*" in\n{cases}*) echo bad option >&2; exit 2;;\nesac')


@dataclass(frozen=True)
class Diagnosed:
    """What `xpulab doctor --json` said. things: its findings and versions."""

    code: int
    things: list[dict[str, str | None]]

    def find(self, name: str) -> dict[str, str | None]:
        """The first problem that has this name or refers to this row of the remedies."""
        names = ("known", "id", "what")
        problems = [thing for thing in self.things if thing["verdict"] != "ok"]
        found = [thing for thing in problems if name in [thing.get(key) for key in names]]
        assert found, f"{name} is not among {problems}"
        return found[0]


class Environment:
    """A copy of this environment that a test breaks: a virtual environment whose packages are links to the installed ones.

    root: its folder. site: its site-packages. bin: its folder of programs, first on PATH. variables: added to os.environ.
    """

    def __init__(self, root: Path) -> None:
        python = Path(sys.executable).resolve()
        self.root, self.bin, self.variables = root, root / "bin", {}
        self.site = root / INSTALLED.relative_to(sys.prefix)
        self.site.mkdir(parents=True)
        self.bin.mkdir()
        self.python = self.bin / "python"
        self.python.symlink_to(python)
        (root / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
        for entry in INSTALLED.iterdir():
            if "xpulab" not in entry.name:  # it comes from PYTHONPATH
                (self.site / entry.name).symlink_to(entry)

    def own(self, path: str) -> Path:
        """Make a folder or a file below site-packages, and all folders above it, its own; returns it."""
        here = self.site
        for part in Path(path).parts:
            here = here / part
            if here.is_symlink():
                original = here.resolve()
                here.unlink()
                if original.is_dir():
                    here.mkdir()
                    for child in original.iterdir():
                        if child.name != "__pycache__":
                            (here / child.name).symlink_to(child)
                else:
                    shutil.copy2(original, here)
        return here

    def remove(self, *paths: str) -> None:
        """Remove files or folders below site-packages."""
        for path in paths:
            self.own(str(Path(path).parent))
            link = self.site / path
            link.unlink() if link.is_symlink() or link.is_file() else shutil.rmtree(link)

    def library(self, name: str) -> Path:
        """A library of paddle/libs that is this environment's own, and that its libpaddle.so loads."""
        self.own("paddle/base")  # libraries are found from the folder of libpaddle.so
        return self.own(f"paddle/libs/{name}")

    def metadata(self, name: str, version: str) -> None:
        """Replace the metadata of a distribution by those of another version, or add them."""
        for folder in self.site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            folder.unlink()
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def before(self, path: str, line: str) -> None:
        """Put a line of Python before the first line of a module."""
        module = self.own(path)
        text = module.read_text(encoding="utf-8")
        module.write_text(f"{line}\n{text}", encoding="utf-8")

    def tool(self, name: str, script: str) -> None:
        """A program of the vendor that is first on PATH."""
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def run(self, *arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
        """xpulab with these arguments."""
        path = {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(files.ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [self.python, "-m", "xpulab", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=self.root,
            env={**os.environ, **path, **self.variables},
        )

    def doctor(self, *options: str) -> Diagnosed:
        """What the doctor says; an answer that is no diagnosis fails the test."""
        done = self.run("doctor", "--json", *options)
        assert "Traceback" not in done.stderr, done.stderr
        diagnosis = json.loads(done.stdout)
        return Diagnosed(done.returncode, [*diagnosis["findings"], *diagnosis["versions"]])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.setenv("PYTHONPATH", str(NVML))
    monkeypatch.setenv("XPULAB_TEST_NVML", str(made.said))
    return made


@pytest.fixture
def p800(machine: Machine) -> Machine:
    """A healthy host with two P800 OAM cards, as tests/doctor/formats/kl3_*.txt show them."""
    machine.pci("0000:1b:00.0", "1d22", "3688")
    machine.pci("0000:1d:00.0", "1d22", "3688")
    machine.nodes("xpu0", "xpu1", "xpuctrl")
    machine.file("proc/modules", "kunlun 1944359 4 - Live 0x0\n")
    machine.answering("xpu-smi", {"-q": "kl3_query.txt", "-m": "kl3_machine.txt", "": "kl3_table.txt"})
    return machine


@pytest.fixture
def formats() -> Path:
    return FORMATS


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes these distributions, given as name=version, the only ones that are installed."""

    def make(versions: dict[str, str]) -> None:
        site = tmp_path / "site"
        shutil.rmtree(site, ignore_errors=True)
        for name, version in versions.items():
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.setattr(environments, "distributions", lambda name: metadata.distributions(name=name, path=[str(site)]))

    return make


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A healthy environment, to be broken."""
    return Environment(tmp_path / "environment")
