"""A site for the recipes of env/operations: settings, a folder of verdicts, and a way to execute a recipe without variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.conftest import make, save
from tests.fleet.compare.made_up import check, notebook, result
from xpulab.doctor.system import boot_id
from xpulab.files import ROOT

OPERATIONS = ROOT / "env/operations"
COMMAND = "xpulab run 00_demo --check demo.product --device cpu --level smoke"
DRAIN_REASON = f"[node_problem] xpulab demo.product measured 2.5, expected < 1; rerun: {COMMAND}"
"""Of a red verdict."""


def write_verdict(run: Path, red: bool, hours: float, **changed: object) -> None:
    """A folder of a run that ended so many hours ago, and has what the recipes require of one unless it is changed."""
    one = check("demo.product", *["failed"] * red, measured=2.5 if red else 0.5)
    date = (datetime.now(timezone.utc) - timedelta(hours=hours)).isoformat()
    whole = {"device": "cpu", "level": "smoke", "is_whole": True, "date": date, "boot": boot_id()}
    run.mkdir(parents=True)
    (run / "result.new").write_text(json.dumps(result(notebook(one), **{**whole, **changed})))
    (run / "result.new").rename(run / "result.json")


class Site:
    """bin: a folder that is first on the recipes' PATH. verdicts: the folder that they read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.verdicts, self.bin = folder, folder / "verdicts", folder / "bin"
        self.bin.mkdir()
        self.python = str(self.bin / "python3")  # with packages below its folder root's recipes would look at each of them
        self.tool("python3", f'exec {sys.executable} "$@"')
        self.set()

    def set(self, **variables: str) -> None:
        """Settings of the site, and no longer those of an earlier call."""
        variables = {
            "XPULAB_PYTHON": self.python,
            "XPULAB_VERDICTS": str(self.verdicts),
            "XPULAB_DEVICE": "cpu",
            **variables,
        }
        lines = [f'{name}="{value}"' for name, value in variables.items()]
        (self.folder / "xpulab.conf").write_text("\n".join([f"PATH={self.bin}:$PATH", *lines, ""]))

    def put(self, *, red: bool = False, hours: float = 1.0, **changed: object) -> None:
        """Make this the last verdict."""
        write_verdict(self.verdicts / f"run{len(list(self.verdicts.glob('*')))}", red, hours, **changed)

    def tool(self, name: str, script: str) -> None:
        """A program that the recipes find before others of this name."""
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def slurm(self, state: str = "idle", reason: str = "none", comment: str = "", nodes: str = "node7|Unknown|none") -> None:
        """Let sinfo and scontrol say this of node7, and nodes of all: a line NAME|SINCE|REASON for each."""
        (self.folder / "nodes").write_text(f"{nodes}\n")
        (self.folder / "node7").write_text(f"{state}|{reason}\n")
        (self.folder / "comment").write_text(f"   Comment={comment}\n" if comment else "")
        self.sinfo = f'case "$*" in *"--nodes node7"*) cat {self.folder}/node7 ;; *) cat {self.folder}/nodes ;; esac'
        self.tool("sinfo", self.sinfo)
        self.tool(
            "scontrol",
            f'[ "$1" = show ] && exec cat {self.folder}/comment; shift 2; printf "%s\\n" "$@" >> {self.folder}/asked',
        )

    @property
    def asked(self) -> list[str]:
        """What Slurm was asked to change about node7, in order."""
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *command: str, cwd: Path = Path("/"), **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command with no variables but these and the site's settings: no PATH either."""
        environment = {"XPULAB_SETTINGS": str(self.folder / "xpulab.conf"), "OMP_NUM_THREADS": "1", **variables}
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120)

    def recipe(self, path: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a file of env/operations."""
        return self.run(str(OPERATIONS / path), *arguments, **variables)

    def notebook(self, measured: int = 2) -> str:
        """The path of a notebook with one check at level smoke, which is green when it measures 2."""
        notebook = make(f'check.equal("shown.two", {measured}, 2, control=3)', level="smoke", capabilities=["shown"], budget=30)
        save(notebook, self.folder / "shown.ipynb")
        return str(self.folder / "shown.ipynb")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site without verdicts."""
    return Site(tmp_path)


@pytest.fixture
def operations() -> Path:
    """The folder of the recipes."""
    return OPERATIONS


@pytest.fixture
def clean_path() -> str:
    """PATH with the Python of the tests first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
