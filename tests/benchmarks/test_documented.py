"""Each command of docs/performance.md exists, with the options that are shown."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from xpulab import files

pytestmark = pytest.mark.integration

TEXT = (files.ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"tools/benchmarks/(\w+)\.py([^#\n`]*)", TEXT)
SCRIPTS = sorted({name for name, _ in SHOWN})


def test_the_benchmarks_are_documented():
    assert SCRIPTS == ["first_answer", "growth", "house", "peers", "where_time_goes"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_option_that_is_shown_exists(script):
    command = [sys.executable, str(files.ROOT / "tools" / "benchmarks" / f"{script}.py"), "--help"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    shown = {option for name, arguments in SHOWN if name == script for option in re.findall(r"--\w+", arguments)}
    assert shown and shown <= set(re.findall(r"--\w+", listed))
