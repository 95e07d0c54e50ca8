"""The command as its user types it, on what somebody else wrote, with little memory and time; a traceback is a failure."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import zipfile

import pytest

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MEMORY = 2 * 2**30
SECONDS = 30


@pytest.fixture
def xpulab(tmp_path):
    """xpulab("judge", file): exit code and all that it shows."""

    def call(*arguments, variables=None, memory=MEMORY):
        done = subprocess.run(
            [sys.executable, "-m", "xpulab", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            timeout=SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
        )
        shown = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
        assert "Traceback" not in shown and not OBEYED.search(shown), shown[-2000:]
        assert done.returncode in (0, 1, 2), (done.returncode, shown[-2000:])
        return done.returncode, shown

    return call


@pytest.fixture
def packed(tmp_path):
    """packed(name, result or its bytes, **manifest): writes a bundle whose checksums are right; returns its path."""

    def write(name, result, compression=zipfile.ZIP_DEFLATED, files=None, **changed):
        content = result if isinstance(result, bytes) else json.dumps(result).encode()
        contents = {"run/result.json": content, **(files or {})}
        entries = [
            {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "removed": {}}
            for name, content in contents.items()
        ]
        manifest = {"schema": 2, "xpulab": "0", "made": "", "left_out": {}, "entries": entries, "node": name, **changed}
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", compression) as archive:
            archive.writestr("manifest.json", json.dumps(manifest))
            for file, content in contents.items():
                archive.writestr(file, content)
        return tmp_path / f"{name}.zip"

    return write
