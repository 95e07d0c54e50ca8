"""Slurm's prolog looks at the host when a site wants it: executed with a scontrol that notes its arguments."""

from __future__ import annotations

import pytest


@pytest.fixture
def prolog(site):
    """prolog(has, **settings) runs it on a host with these empty files; returns its exit code and what scontrol was asked."""

    def run(*has, **settings):
        for name in has:
            (site.folder / "root" / name).parent.mkdir(parents=True)
            (site.folder / "root" / name).touch()
        site.set(**settings)
        site.tool("scontrol", f'printf "%s\\n" "$@" >> {site.folder}/asked')
        done = site.recipe("slurm/prolog.sh", SLURMD_NODENAME="node7", XPULAB_SYSTEM_ROOT=str(site.folder / "root"))
        asked = site.folder / "asked"
        return done.returncode, asked.read_text().splitlines() if asked.exists() else []

    return run


def test_a_host_that_is_wrong_is_drained_with_its_reason(prolog):
    code, asked = prolog(XPULAB_CHECK_HOST="1")
    assert code == 1 and asked[:3] == ["update", "NodeName=node7", "State=DRAIN"]
    assert asked[3] == "Reason=[node_problem] host shared-memory: /dev/shm is not mounted; look: xpulab host"


@pytest.mark.parametrize(
    ("has", "settings"),
    [
        (("dev/shm/batches",), {"XPULAB_CHECK_HOST": "1", "XPULAB_CHECKPOINTS": "/tmp"}),
        ((), {}),
        (("dev/shm/batches",), {"XPULAB_CHECK_HOST": "1", "XPULAB_EXPECT": ""}),
    ],
    ids=["a host that is right", "a site that does not want it", "a site that names no folder"],
)
def test_otherwise_the_job_starts(prolog, has, settings):
    assert prolog(*has, **settings) == (0, [])
