"""Folders that hold made-up results."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def put(tmp_path):
    """put(name=result, ...): writes each result.json into a folder of its own; returns the folders."""

    def write(**results):
        for name, content in results.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "result.json").write_text(json.dumps(content, indent=2))
        return [tmp_path / name for name in results]

    return write
