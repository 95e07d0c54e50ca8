"""A machine that lost its card is red, not a green CPU: `xpulab run` and its gate, env/validate.sh, use_device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.doctor.conftest import Machine
from xpulab import files

pytestmark = pytest.mark.integration

HINT = "to judge the CPU all the same: --device cpu"


@pytest.fixture
def lost(tmp_path):
    """lost(*command): runs it where there is a P800 on the bus, no /dev/xpu0, no tool, and the wheel for the CPU."""
    machine = Machine(tmp_path)
    machine.pci("0000:03:00.0", "1d22", "3688")

    def run(*command, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XPULAB_")}
        environment |= {"PYTHONPATH": f"{files.ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
        environment |= {"XPULAB_SYSTEM_ROOT": str(machine.root), **variables}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)

    return run


def names_the_card(text):
    return "0000:03:00.0 (1d22:3688)" in text and "modprobe kunlun" in text and HINT in text


def test_a_run_is_red_leaves_all_reports_and_its_gate_gives_the_reason(lost, tmp_path):
    xpulab = (sys.executable, "-m", "xpulab")
    done = lost(*xpulab, "run", "00_environment", "--level", "smoke", "--out", "out")
    assert (done.returncode, done.stderr) == (1, "")
    assert names_the_card(done.stdout) and done.stdout.splitlines()[-1] == HINT
    result = json.loads((tmp_path / "out/result.json").read_text(encoding="utf-8"))
    jsonschema.validate(result, json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8")))
    assert (result["green"], result["device"], result["verdict"]) == (False, "xpu", "XPU: NOT READY")
    assert {check["outcome"] for notebook in result["notebooks"] for check in notebook["checks"]} == {"missing"}
    suites = ElementTree.parse(tmp_path / "out/junit.xml").getroot()
    assert int(suites[0].get("errors")) == int(suites[0].get("tests")) > 0
    assert names_the_card(ElementTree.tostring(suites, encoding="unicode"))
    assert "XPU: NOT READY" in (tmp_path / "out/index.html").read_text(encoding="utf-8")
    done = lost(*xpulab, "gate", "out", "--reason")
    assert done.returncode == 1 and done.stdout.startswith("[node_problem] xpulab the accelerator is lost: ")


def test_validate_is_red_with_an_environment_that_it_must_not_make(lost, tmp_path):
    validate = str(files.ROOT / "env/validate.sh")
    done = lost("bash", validate, "00_environment", "--level", "smoke", XPULAB_VENV=str(tmp_path / "venv"))
    assert (done.returncode, (tmp_path / "venv").exists()) == (1, False)
    assert names_the_card(done.stderr)


USE = """
from xpulab.chapters.shared.device import use_device
print(use_device("cpu").name)
use_device()
"""


def test_use_device_takes_the_cpu_only_where_it_is_named(lost):
    done = lost(sys.executable, "-c", USE)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "cpu"), done.stderr
    assert names_the_card(done.stderr)
