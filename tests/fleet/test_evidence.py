"""The evidence of this machine has the diagnosis, the versions and the variables, and each tool's own output."""

from __future__ import annotations

import json
import stat

import pytest

from xpulab.fleet.evidence import evidence

TOOL = """#!/bin/sh
echo "card 0 $*"
"""
KERNEL = """#!/bin/sh
echo '[Sun Nov 22 03:00:00 2026] xpu 0000:51:00.0: reset'
echo '[Sun Nov 22 03:00:01 2026] eth0: link is up'
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    for name, text in (("xpu_smi", TOOL), ("dmesg", KERNEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return dict(evidence({"XPU_VISIBLE_DEVICES": "0", "FLAGS_use_stride_kernel": "1", "HOME": "/home/li"}))


def test_a_tool_has_a_file_for_each_command_and_one_that_is_missing_has_none(found):
    assert found["tools/xpu_smi_-m.txt"] == "$ xpu_smi -m\n# xpu_smi -m answered\ncard 0 -m\n"
    assert "tools/xpu-smi_-q.txt" not in found


def test_of_the_kernel_log_only_lines_about_cards_are_kept(found):
    assert "0000:51:00.0: reset" in found["kernel.txt"] and "eth0" not in found["kernel.txt"]


def test_only_variables_of_paddle_and_cards_are_kept(found):
    assert json.loads(found["variables.json"]) == {"FLAGS_use_stride_kernel": "1", "XPU_VISIBLE_DEVICES": "0"}


def test_diagnosis_and_versions_are_there(found):
    assert json.loads(found["doctor.json"])["device"] in ("cpu", "gpu", "xpu")
    assert json.loads(found["versions.json"])["packages"]["numpy"]
