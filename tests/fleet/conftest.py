"""A Slurm cluster of three nodes, started once for all tests of a module that use it; bundles of made-up results."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.slurm_cluster import Cluster, cluster, missing
from xpulab.fleet import bundle


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


@pytest.fixture
def pack(tmp_path):
    """pack(name, result, node=...): writes a bundle; returns its path."""

    def write(name, content, node=None, digest=None):
        text = json.dumps(content).encode()
        digest = digest or hashlib.sha256(text).hexdigest()
        entry = {"name": "run/result.json", "size": len(text), "sha256": digest, "removed": {}}
        manifest = {"schema": bundle.SCHEMA, "xpulab": "0", "made": "", "left_out": {}, "entries": [entry], "node": node}
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(bundle.MANIFEST, json.dumps(manifest))
            archive.writestr("run/result.json", text)
        return tmp_path / f"{name}.zip"

    return write
