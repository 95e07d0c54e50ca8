"""A machine that lost its card is red, not a green CPU: `xpulab run` and its gate, env/validate.sh, use_device.

The machine is this one with another PCI bus, in a mount namespace; where that is not permitted, with another root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from xpulab import files

pytestmark = pytest.mark.integration

BUS = "/sys/bus/pci/devices"
HINT = "to judge the CPU all the same: --device cpu"
MOUNTED = 'mount --bind "$0" /sys/bus/pci/devices && exec "$@"'


@cache
def namespace():
    """The words that start a command in a mount namespace; empty where that is not permitted."""
    for words in (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user")):
        try:
            done = subprocess.run([*words, "bash", "-c", f"mount --bind {files.ROOT} {BUS}"], capture_output=True)
        except FileNotFoundError:
            return ()
        if done.returncode == 0:
            return words
    return ()


class Machine:
    """folder: where commands run. Its bus has what a test puts there; the vendor's tools are missing."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bus = folder, folder / "root" / BUS[1:]
        self.bus.mkdir(parents=True)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XPULAB_")}
        environment |= {"PYTHONPATH": f"{files.ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
        if words := namespace():
            command = (*words, "bash", "-c", MOUNTED, str(self.bus), *command)
        else:
            environment["XPULAB_SYSTEM_ROOT"] = str(self.folder / "root")
        environment |= variables
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=200)

    def xpulab(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "xpulab", *arguments, **variables)

    def result(self) -> dict:
        """The report of the run, which fits its schema."""
        found = json.loads((self.folder / "out/result.json").read_text(encoding="utf-8"))
        jsonschema.validate(found, json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8")))
        return found


@pytest.fixture
def lost(tmp_path):
    """A machine with a P800 on the bus, no /dev/xpu0 and the wheel for the CPU."""
    machine = Machine(tmp_path)
    function = machine.bus / "0000:03:00.0"
    function.mkdir()
    for name, value in (("vendor", "1d22"), ("device", "3688"), ("class", "120000")):
        (function / name).write_text(f"0x{value}\n")
    return machine


def names_the_card(text):
    return "0000:03:00.0 (1d22:3688)" in text and "modprobe kunlun" in text and HINT in text


def test_a_run_is_red_and_leaves_all_reports(lost):
    done = lost.xpulab("run", "00_environment", "--level", "smoke", "--out", "out")
    assert (done.returncode, done.stderr) == (1, "")
    assert names_the_card(done.stdout) and done.stdout.splitlines()[-1] == HINT
    result = lost.result()
    assert (result["green"], result["device"], result["verdict"]) == (False, "xpu", "XPU: NOT READY")
    assert {check["outcome"] for notebook in result["notebooks"] for check in notebook["checks"]} == {"missing"}
    suites = ElementTree.parse(lost.folder / "out/junit.xml").getroot()
    assert int(suites[0].get("errors")) == int(suites[0].get("tests")) > 0
    assert names_the_card(ElementTree.tostring(suites, encoding="unicode"))
    assert "XPU: NOT READY" in (lost.folder / "out/index.html").read_text(encoding="utf-8")
    done = lost.xpulab("gate", "out", "--reason")
    assert done.returncode == 1 and done.stdout.startswith("[node_problem] xpulab the accelerator is lost: ")


def test_validate_is_red_with_an_environment_that_it_must_not_make(lost):
    elsewhere = lost.folder / "venv"
    arguments = ("00_environment", "--level", "smoke")
    done = lost.run("bash", str(files.ROOT / "env/validate.sh"), *arguments, XPULAB_VENV=str(elsewhere))
    assert (done.returncode, elsewhere.exists()) == (1, False)
    assert names_the_card(done.stderr)


USE = """
from xpulab.chapters.shared.device import use_device
print(use_device("cpu").name)
use_device()
"""


def test_use_device_takes_the_cpu_only_where_it_is_named(lost):
    done = lost.run(sys.executable, "-c", USE)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "cpu"), done.stderr
    assert names_the_card(done.stderr)
