"""Slurm's prolog looks at the host when a site wants it: executed with a scontrol that notes its arguments."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xpulab.files import ROOT

SETTINGS = """PATH={folder}:$PATH
XPULAB_PYTHON={python}
XPULAB_VERDICTS={folder}/verdicts
XPULAB_HOST={host}
export XPULAB_SYSTEM_ROOT={folder}/root
"""


@pytest.fixture
def prolog(tmp_path):
    """prolog(size, host) runs it on a host with so much shared memory; returns its exit code and what scontrol was asked."""

    def run(size, host):
        (tmp_path / "root/proc").mkdir(parents=True, exist_ok=True)
        (tmp_path / "root/proc/mounts").write_text(f"tmpfs /dev/shm tmpfs rw,size={size} 0 0\n")
        tool = tmp_path / "scontrol"
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/asked\n')
        tool.chmod(0o755)
        (tmp_path / "site.conf").write_text(SETTINGS.format(folder=tmp_path, python=sys.executable, host=host))
        environment = {"XPULAB_SETTINGS": str(tmp_path / "site.conf"), "SLURMD_NODENAME": "node7"}
        script = ROOT / "env/operations/slurm/prolog.sh"
        done = subprocess.run([str(script)], env=environment, capture_output=True, text=True, timeout=60)
        asked = tmp_path / "asked"
        return done.returncode, asked.read_text().splitlines() if asked.exists() else []

    return run


def test_a_host_that_is_wrong_is_drained_with_its_reason(prolog):
    code, asked = prolog("64m", "--checkpoints=/tmp")
    assert code == 1 and asked[:3] == ["update", "NodeName=node7", "State=DRAIN"]
    assert asked[3].startswith("Reason=[node_problem] host shared-memory: /dev/shm has 0.0625 GiB")
    assert asked[3].endswith("look: xpulab doctor --host")


def test_a_host_that_is_right_starts_the_job(prolog):
    assert prolog("8g", "--host") == (0, [])


def test_a_site_that_does_not_want_it_has_no_look_at_the_host(prolog):
    assert prolog("64m", "") == (0, [])


def test_options_that_do_not_exist_are_no_verdict(prolog):
    assert prolog("64m", "--no-such-option") == (0, [])
