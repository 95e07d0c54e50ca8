"""A Slurm cluster of three nodes, started once for all tests of a module that use it; bundles of made-up results."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from xpulab.fleet import bundle

_spec = importlib.util.spec_from_file_location("slurm_cluster", Path(__file__).parent / "slurm_cluster.py")
slurm_cluster = importlib.util.module_from_spec(_spec)
sys.modules["slurm_cluster"] = slurm_cluster
_spec.loader.exec_module(slurm_cluster)

REQUIRED = "XPULAB_TEST_SLURM"
"""With "required" a machine without Slurm fails the tests that need it, as in CI; otherwise they are skipped."""


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[slurm_cluster.Cluster]:
    """A cluster for a module's tests."""
    if missing := slurm_cluster.missing():
        message = f"needs {', '.join(missing)} (Debian: slurm-wlm, munge)"
        pytest.fail(message) if os.environ.get(REQUIRED) == "required" else pytest.skip(message)
    temporary = tempfile.TemporaryDirectory(prefix="xpulab-slurm-", ignore_cleanup_errors=True)
    with temporary as folder, slurm_cluster.cluster(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: slurm_cluster.Cluster) -> Iterator[slurm_cluster.Cluster]:
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
