"""Slurm's prolog and epilog look at the host when a site wants it, with doubles of Slurm's commands."""

from __future__ import annotations

import pytest


@pytest.fixture
def recipe(site):
    """recipe(path, has_memory, look) runs it with /dev/shm or without; returns exit code and what scontrol was asked."""

    def run(path, has_memory, look="1"):
        (site.folder / "root").mkdir()
        if has_memory:
            (site.folder / "root/dev/shm").mkdir(parents=True)
            (site.folder / "root/dev/shm/batches").touch()
        site.set(XPULAB_CHECK_HOST=look, XPULAB_CHECKPOINTS=str(site.folder))
        site.slurm()
        done = site.recipe(path, SLURMD_NODENAME="node7", XPULAB_SYSTEM_ROOT=str(site.folder / "root"))
        return done.returncode, site.asked

    return run


@pytest.mark.parametrize(("path", "exits"), [("slurm/prolog.sh", 1), ("slurm/epilog.sh", 0)])
def test_a_host_that_is_wrong_is_drained_with_its_reason(recipe, path, exits):
    code, asked = recipe(path, has_memory=False)
    assert code == exits and asked[0] == "State=DRAIN"
    assert asked[1].startswith("Reason=[node_problem] host ")


@pytest.mark.parametrize("path", ["slurm/prolog.sh", "slurm/epilog.sh"])
@pytest.mark.parametrize(
    ("has_memory", "look"), [(True, "1"), (False, "0")], ids=["a host that is right", "a site that does not want it"]
)
def test_otherwise_the_job_starts(recipe, path, has_memory, look):
    assert recipe(path, has_memory, look) == (0, [])
