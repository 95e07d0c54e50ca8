"""Slurm's prolog looks at the host when a site wants it: executed with a scontrol that notes its arguments."""

from __future__ import annotations

import pytest


@pytest.fixture
def prolog(site):
    """prolog(options, files) runs it on a host with these empty files; returns its exit code and what scontrol was asked."""

    def run(options, files=("dev/shm/batches",)):
        for name in files:
            (site.folder / "root" / name).parent.mkdir(parents=True)
            (site.folder / "root" / name).touch()
        site.set(XPULAB_HOST_OPTIONS=options)
        site.tool("scontrol", f'printf "%s\\n" "$@" >> {site.folder}/asked')
        done = site.recipe("slurm/prolog.sh", SLURMD_NODENAME="node7", XPULAB_SYSTEM_ROOT=str(site.folder / "root"))
        asked = site.folder / "asked"
        return done.returncode, asked.read_text().splitlines() if asked.exists() else []

    return run


def test_a_host_that_is_wrong_is_drained_with_its_reason(prolog):
    code, asked = prolog("--device=xpu", files=())
    assert code == 1 and asked[:3] == ["update", "NodeName=node7", "State=DRAIN"]
    assert asked[3] == "Reason=[node_problem] host shared-memory: /dev/shm is not mounted and 1 more; look: xpulab host"


@pytest.mark.parametrize(
    ("options", "files"),
    [("--checkpoints=/tmp", ("dev/shm/batches",)), ("", ()), ("--no-such-option", ())],
    ids=["a host that is right", "a site that does not want it", "an option that does not exist"],
)
def test_otherwise_the_job_starts(prolog, options, files):
    assert prolog(options, files) == (0, [])
