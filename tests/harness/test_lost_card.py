"""A machine that lost its card is red, not a green CPU: `xpulab run`, env/validate.sh, use_device, a soak, a node of a fleet.

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
import nbformat
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

    def card(self, vendor="1d22", device="3688", kind="120000") -> None:
        function = self.bus / "0000:03:00.0"
        function.mkdir()
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            (function / name).write_text(f"0x{value}\n")

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

    def result(self, name: str = "result.json", schema: str = "result.schema.json") -> dict:
        """A report of the run, which fits its schema."""
        found = json.loads((self.folder / "out" / name).read_text(encoding="utf-8"))
        jsonschema.validate(found, json.loads(files.data("schema", schema).read_text(encoding="utf-8")))
        return found


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def lost(machine):
    """A machine with a P800 on the bus, no /dev/xpu0 and the wheel for the CPU."""
    machine.card()
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


def test_the_gate_drains_that_node_with_the_reason(lost):
    lost.xpulab("run", "00_environment", "--out", "out")
    done = lost.xpulab("gate", "out", "--reason")
    assert done.returncode == 1 and done.stdout.startswith("[node_problem] xpulab the accelerator is lost: ")


def test_validate_is_red_with_an_environment_that_it_must_not_make(lost):
    elsewhere = lost.folder / "venv"
    arguments = ("00_environment", "--level", "smoke")
    done = lost.run("bash", str(files.ROOT / "env/validate.sh"), *arguments, XPULAB_VENV=str(elsewhere))
    assert (done.returncode, elsewhere.exists()) == (1, False)
    assert names_the_card(done.stderr)


def test_a_soak_is_red(lost):
    done = lost.xpulab("soak", "--hours", "0.001", "--out", "out")
    assert done.returncode == 1 and names_the_card(done.stdout)


def test_a_node_of_a_fleet_is_red(lost):
    run = ("run", "00_environment", "--device", "auto", "--level", "smoke")
    done = lost.xpulab("fleet", "task", "--node", "n1", "--limit", "100", "--shared", str(lost.folder), "--", *run)
    assert (lost.folder / "n1.zip").exists(), done.stdout + done.stderr
    shown = lost.xpulab("fleet", "show", str(lost.folder))
    assert shown.returncode == 1 and "which Paddle cannot use" in shown.stdout


def test_plain_papermill_is_red_before_the_first_section(lost):
    notebook = nbformat.read(files.NOTEBOOKS / "00_environment.ipynb", as_version=4)
    sections = (index for index, cell in enumerate(notebook.cells) if "section" in cell.metadata.get("xpulab", {}))
    notebook.cells = notebook.cells[: next(sections)]  # its head, so that nothing long runs where this is not red
    nbformat.write(notebook, lost.folder / "head.ipynb")
    done = lost.run(sys.executable, "-m", "papermill", "--no-progress-bar", "head.ipynb", "out.ipynb")
    assert done.returncode == 1 and names_the_card(done.stderr)
    executed = nbformat.read(lost.folder / "out.ipynb", as_version=4)
    errors = [output for cell in executed.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    assert [error.ename for error in errors] == ["AcceleratorLost"]


USE = "from xpulab.chapters.shared.device import use_device\nprint(use_device({}).name)"


def test_use_device_raises_as_papermill_runs_it(lost):
    done = lost.run(sys.executable, "-c", USE.format(""))
    assert done.returncode == 1 and names_the_card(done.stderr)


def test_use_device_takes_the_cpu_when_it_is_named(lost):
    done = lost.run(sys.executable, "-c", USE.format("'cpu'"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "cpu"), done.stderr


def test_the_doctor_says_wrong_for_auto_and_warns_for_the_cpu(lost):
    codes = [json.loads(lost.xpulab("doctor", "--json", *options).stdout)["outcome"] for options in ((), ("--device", "cpu"))]
    assert codes == ["wrong", "warn"]


def test_the_cpu_of_that_machine_is_green_when_it_is_named_and_the_verdict_says_cpu(lost):
    notebook = "00_environment"
    arguments = ("--check", "numerics.first-product", "--device", "cpu", "--out", "out")
    done = lost.xpulab("run", notebook, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lost.result()["verdict"].startswith("CPU: ") and "CPU: " in done.stdout
    properties = ElementTree.parse(lost.folder / "out/junit.xml").getroot().findall(".//property[@name='verdict']")
    assert {each.get("value") for each in properties} == {lost.result()["verdict"]}


def test_a_display_chip_alone_changes_nothing(machine):
    machine.card("10de", "1eb8", "030000")
    done = machine.run(sys.executable, "-c", USE.format(""))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "cpu"), done.stderr


def test_fewer_simulated_cards_than_expected_are_red(machine):
    arguments = ("00_environment", "--device", "sim", "--cards", "2", "--expect", "8", "--out", "out")
    done = machine.xpulab("run", *arguments)
    assert (done.returncode, machine.result()["lost"]["problem"]) == (1, "2 of 8 cards")
