"""Slurm's prolog looks at the host when a site wants it: executed with a scontrol that notes its arguments."""

from __future__ import annotations

import pytest


@pytest.fixture
def prolog(site):
    """prolog(size, host) runs it where /dev/shm has this size; returns its exit code and what scontrol was asked."""

    def run(size, host):
        (site.folder / "root/proc").mkdir(parents=True)
        (site.folder / "root/proc/mounts").write_text(f"tmpfs /dev/shm tmpfs rw,size={size} 0 0\n")
        site.set(XPULAB_HOST=host)
        site.tool("scontrol", f'printf "%s\\n" "$@" >> {site.folder}/asked')
        done = site.recipe("slurm/prolog.sh", SLURMD_NODENAME="node7", XPULAB_SYSTEM_ROOT=str(site.folder / "root"))
        asked = site.folder / "asked"
        return done.returncode, asked.read_text().splitlines() if asked.exists() else []

    return run


def test_a_host_that_is_wrong_is_drained_with_its_reason(prolog):
    code, asked = prolog("8m", "--host")
    assert code == 1 and asked[:3] == ["update", "NodeName=node7", "State=DRAIN"]
    assert asked[3].startswith("Reason=[node_problem] host ") and asked[3].endswith("look: xpulab doctor --host")


@pytest.mark.parametrize(
    ("size", "host"),
    [("8g", "--host"), ("8m", ""), ("8m", "--no-such-option")],
    ids=["a host that is right", "a site that does not want it", "an option that does not exist"],
)
def test_otherwise_the_job_starts(prolog, size, host):
    assert prolog(size, host) == (0, [])
