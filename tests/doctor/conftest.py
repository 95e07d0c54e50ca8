"""A machine made of files: a root folder with PCI functions and device nodes, and a PATH with fake tools."""

from __future__ import annotations

from pathlib import Path

import pytest

FORMATS = Path(__file__).parent / "formats"


class Machine:
    """root stands for "/"; tools are shell scripts in the only folder on PATH."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.bin = folder / "bin"
        self.calls = folder / "calls"
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

    def answering(self, name: str, answers: dict[str, str]) -> None:
        """A tool that prints the file of tests/doctor/formats by its options, and refuses every other option."""
        cases = "".join(f'"{options}") exec /bin/cat {FORMATS / file};;\n' for options, file in answers.items())
        self.tool(name, f'echo "$*" >> {self.calls}\ncase "$*" in\n{cases}*) echo bad option >&2; exit 2;;\nesac')


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin))
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
def installed(tmp_path: Path):
    """Makes a folder with the metadata of distributions, given as name=version, and returns its search path."""

    def make(versions: dict[str, str]) -> list[str]:
        site = tmp_path / "site"
        for name, version in versions.items():
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        return [str(site)]

    return make
