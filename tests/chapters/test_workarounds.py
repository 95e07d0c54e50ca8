"""Workarounds of xpulab.chapters.shared.workarounds that depend on the processor or the version, for others than those here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xpulab.chapters.shared.workarounds import multiply_fast_on_amd

SCRIPT = Path(__file__).parent / "scripts" / "load_two_checkpoints.py"
SECONDS = 200


@pytest.mark.parametrize(
    ("described", "variable"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t: sse2 fma avx2\n", "5"),
        ("vendor_id\t: HygonGenuine\nflags\t: sse2 fma avx2\n", "5"),
        ("vendor_id\t: AuthenticAMD\nflags\t: sse2\n", None),
        ("vendor_id\t: GenuineIntel\nflags\t: sse2 fma avx2\n", None),
        ("CPU implementer\t: 0x41\n", None),
        (None, None),
    ],
)
def test_the_variable_for_fast_products_is_set_on_amd_and_hygon_only(tmp_path, monkeypatch, described, variable):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "")  # so that monkeypatch restores what there was
    monkeypatch.delenv("MKL_DEBUG_CPU_TYPE")
    processors = tmp_path / "cpuinfo"
    if described is not None:
        processors.write_text(described)
    multiply_fast_on_amd(str(processors))
    assert os.environ.get("MKL_DEBUG_CPU_TYPE") == variable


def test_a_value_for_fast_products_that_the_user_has_set_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "4")
    processors = tmp_path / "cpuinfo"
    processors.write_text("vendor_id : AuthenticAMD\nflags : fma avx2\n")
    multiply_fast_on_amd(str(processors))
    assert os.environ["MKL_DEBUG_CPU_TYPE"] == "4"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("version", "workarounds", "lines"),
    [
        ("3.3.0", ["read_each_checkpoint_anew"], ["replaced", "[1.0, 2.0, 3.0]"]),
        ("3.3.1", ["read_each_checkpoint_anew"], ["not replaced", "[1.0, 2.0, 0.0]"]),
    ],
)
def test_the_next_checkpoint_is_read_with_its_own_metadata_only_with_the_workaround(version, workarounds, lines):
    command = [sys.executable, str(SCRIPT), version, *workarounds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.stdout.splitlines() == lines, done.stderr
