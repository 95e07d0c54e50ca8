"""The recipes for node-problem-detector, NHC and systemd, by the contract that each program documents."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess

import pytest

PLUGIN = "node-problem-detector/check_xpulab.sh"
LIMIT = 80
"""Characters of a message, node-problem-detector's max_output_length."""


@pytest.mark.parametrize(
    ("verdict", "code", "message"),
    [
        ({}, 0, "xpulab: green 1.0 h ago, 1 of 1 checks at level smoke on cpu\n"),
        ({"red": True}, 1, "xpulab demo.product measured 2.5, expected < 1; rerun: xpulab run 00_demo --chec"),
        ({"hours": 50.0}, 2, "xpulab: unknown, the last verdict is too old: green 50.0 h ago, 1 of 1 checks at"),
    ],
    ids=["green", "red", "too old"],
)
def test_the_plug_in_answers_with_exit_code_and_short_message(site, verdict, code, message):
    site.put(**verdict)
    done = site.recipe(PLUGIN)
    assert (done.returncode, done.stdout) == (code, message) and len(done.stdout.encode()) <= LIMIT


def test_without_a_verdict_a_python_or_an_answer_the_plug_in_knows_nothing(site):
    assert site.recipe(PLUGIN).returncode == 2
    site.put(red=True)
    site.set(XPULAB_PYTHON="/nowhere/python")
    done = site.recipe(PLUGIN)
    assert (done.returncode, "/nowhere/python cannot run xpulab" in done.stdout) == (2, True)
    site.tool("broken", "echo Traceback; exit 1")
    site.set(XPULAB_PYTHON=str(site.bin / "broken"))
    assert site.recipe(PLUGIN).returncode == 2


def test_the_monitor_has_the_documented_fields_and_names_the_plug_in(operations):
    monitor = json.loads((operations / "node-problem-detector/xpulab.json").read_text())
    assert set(monitor) == {"plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules"}
    assert monitor["plugin"] == "custom" and monitor["pluginConfig"]["max_output_length"] == LIMIT
    (condition,), (rule,) = monitor["conditions"], monitor["rules"]
    assert set(condition) == {"type", "reason", "message"}
    assert (rule["type"], rule["condition"]) == ("permanent", condition["type"])
    assert int(rule["timeout"].removesuffix("s")) <= int(monitor["pluginConfig"]["timeout"].removesuffix("s")) == 5
    assert condition["reason"] != rule["reason"] and rule["path"] == f"/opt/xpulab/env/operations/{PLUGIN}"


@pytest.mark.parametrize(("verdict", "code"), [({}, 0), ({"red": True}, 1), ({"hours": 50.0}, 2)], ids=["green", "red", "old"])
def test_the_command_of_the_line_for_nhc_returns_what_the_line_expects_only_when_green(site, operations, verdict, code):
    site.put(**verdict)
    (line,) = [each for each in (operations / "nhc/nhc.conf").read_text().splitlines() if not each.startswith("#")]
    node, check = (part.strip() for part in line.split("||"))
    name, timeout, seconds, retval, expected, program, *arguments = shlex.split(check)
    assert (node, name, timeout, retval, expected) == ("*", "check_cmd_status", "-t", "-r", "0") and int(seconds) <= 5
    assert (program, arguments) == (f"/opt/xpulab/env/operations/{PLUGIN}", [])
    assert site.recipe(PLUGIN).returncode == code


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_service_and_the_timer(operations, tmp_path):
    for name in ("xpulab.service", "xpulab.timer"):
        text = (operations / "systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/xpulab", str(operations.parent.parent)))
    command = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "xpulab" in line]) == (0, []), done.stderr
