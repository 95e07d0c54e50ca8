"""Slurm's prolog and epilog look at the host when a site wants it, with doubles of Slurm's commands."""

from __future__ import annotations

import pytest


@pytest.fixture
def recipe(site):
    """recipe(path, size, look) runs it where /dev/shm has this size; returns its exit code and what scontrol was asked."""

    def run(path, size, look="1"):
        (site.folder / "root/proc").mkdir(parents=True)
        (site.folder / "root/proc/mounts").write_text(f"tmpfs /dev/shm tmpfs rw,size={size} 0 0\n")
        site.set(XPULAB_CHECK_HOST=look, XPULAB_CHECKPOINTS=str(site.folder))
        site.slurm()
        done = site.recipe(path, SLURMD_NODENAME="node7", XPULAB_SYSTEM_ROOT=str(site.folder / "root"))
        return done.returncode, site.asked

    return run


@pytest.mark.parametrize(("path", "exits"), [("slurm/prolog.sh", 1), ("slurm/epilog.sh", 0)])
def test_a_host_that_is_wrong_is_drained_with_its_reason(recipe, path, exits):
    code, asked = recipe(path, "8m")
    assert code == exits and asked[0] == "State=DRAIN"
    assert asked[1].startswith("Reason=[node_problem] host ")


@pytest.mark.parametrize("path", ["slurm/prolog.sh", "slurm/epilog.sh"])
@pytest.mark.parametrize(
    ("size", "look"), [("8g", "1"), ("8m", "0")], ids=["a host that is right", "a site that does not want it"]
)
def test_otherwise_the_job_starts(recipe, path, size, look):
    assert recipe(path, size, look) == (0, [])
