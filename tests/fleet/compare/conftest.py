"""Folders and bundles that hold made-up results."""

from __future__ import annotations

import hashlib
import json
import zipfile

import pytest

from xpulab.fleet import bundle


@pytest.fixture
def put(tmp_path):
    """put(name=result, ...): writes each result.json into a folder of its own; returns the folders."""

    def write(**results):
        for name, content in results.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "result.json").write_text(json.dumps(content, indent=2))
        return [tmp_path / name for name in results]

    return write


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
