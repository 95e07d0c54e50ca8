"""The evidence of this machine has the diagnosis, the versions and the variables, and each tool's own output."""

from __future__ import annotations

import json
import stat

import pytest

from xpulab.doctor import tool
from xpulab.fleet import evidence as gathering
from xpulab.fleet.evidence import evidence

TOOL = """#!/bin/sh
echo "card 0 $*"
"""
KERNEL = """#!/bin/sh
echo '[Sun Nov 22 03:00:00 2026] xpu 0000:51:00.0: reset'
echo '[Sun Nov 22 03:00:01 2026] eth0: link is up'
"""


VARIABLES = {"XPU_VISIBLE_DEVICES": "0,UUID", "FLAGS_use_stride_kernel": "True", "OMP_NUM_THREADS": "4"}
OTHERS = {
    "HOME": "/home/li",
    "PADDLE_AK": "abc",
    "XPULAB_LICENSE": "abc",
    "BKCL_NOTE": "0x12",
    "XPUSER": "1",
    "CUDA_KEY": "key",
}


@pytest.fixture
def gathered(tmp_path, monkeypatch):
    """gathered(tool=text, ...): the evidence of a machine with these tools; Paddle is not imported."""
    monkeypatch.setattr(gathering, "_diagnosis", lambda device: json.dumps({"device": device}))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def gather(device="auto", **tools):
        for name, text in tools.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(stat.S_IRWXU)
        return dict(evidence({**VARIABLES, **OTHERS}, device))

    return gather


def test_a_machine_has_a_file_for_each_command_of_its_tools_and_of_the_rest_what_is_about_cards(gathered):
    found = gathered(xpu_smi=TOOL, dmesg=KERNEL)
    assert found["tools/xpu_smi_-m.txt"] == "$ xpu_smi -m\n# xpu_smi -m answered\ncard 0 -m\n"
    assert "tools/xpu-smi_-q.txt" not in found
    assert "0000:51:00.0: reset" in found["kernel.txt"] and "eth0" not in found["kernel.txt"]
    assert json.loads(found["variables.json"]) == VARIABLES
    assert json.loads(found["doctor.json"])["device"] == "auto"
    versions = json.loads(found["versions.json"])
    assert versions["packages"]["numpy"] and versions["commit"]


def test_a_kernel_log_that_cannot_be_read_says_why_and_the_journal_is_asked(gathered):
    denied = "#!/bin/sh\necho 'dmesg: Operation not permitted' >&2\nexit 1\n"
    journal = "#!/bin/sh\necho 'kernel: xpu 0000:51:00.0: reset'\n"
    assert gathered(dmesg=denied, journalctl=journal)["kernel.txt"] == (
        "# dmesg --ctime: dmesg: Operation not permitted\n"
        "# journalctl --dmesg --no-pager --quiet: 1 lines, of which 1 are about cards or memory; the last of these:\n"
        "kernel: xpu 0000:51:00.0: reset\n"
    )


def test_a_tool_that_does_not_end_is_called_once(gathered, monkeypatch):
    monkeypatch.setattr(tool.run_tool, "__defaults__", (0.2,))
    found = gathered(xpu_smi="#!/bin/sh\nsleep 30\n")
    assert "did not end within 0.2 s" in found["tools/xpu_smi.txt"]
    assert found["tools/xpu_smi_-q.txt"] == "$ xpu_smi -q\n# not called: xpu_smi did not end before\n"


def test_a_device_that_is_gone_is_said_in_the_diagnosis():
    found = dict(evidence({}, "xpu"))
    assert "xpu" in json.loads(found["doctor.json"])["error"]
