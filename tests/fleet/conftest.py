"""A Slurm cluster of three nodes, started once for all tests of a module that use it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.slurm_cluster import Cluster, cluster, missing


def slurm_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for a cluster. Without Slurm the test is skipped; with XPULAB_TEST_SLURM=required, as in CI, it fails."""
    if programs := missing():
        message = f"needs {', '.join(programs)} (Debian: slurm-wlm, munge)"
        pytest.fail(message) if os.environ.get("XPULAB_TEST_SLURM") == "required" else pytest.skip(message)
    return tempfile.TemporaryDirectory(prefix="xpulab-slurm-", ignore_cleanup_errors=True)


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[Cluster]:
    """A cluster for a module's tests."""
    with slurm_folder() as folder, cluster(Path(folder)) as running:
        yield running


@pytest.fixture(name="cluster")
def usable_cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with all nodes usable, before the test and after it."""
    running_cluster.restore()
    yield running_cluster
    running_cluster.restore()
