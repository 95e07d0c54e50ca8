"""What must run in one of pytest-xdist's workers exists, and nothing that uses the run of the whole suite is left out."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ONE_WORKER
from xpulab.files import ROOT

SCOPES = [scope for scopes in ONE_WORKER.values() for scope in scopes]
USES_THE_SUITE = re.compile(r"def test_\w+\(self, suite\b")


@pytest.mark.parametrize("scope", SCOPES)
def test_what_one_worker_runs_exists(scope):
    path, _, name = scope.partition("::")
    assert f"class {name}:" in (ROOT / path).read_text(encoding="utf-8") if name else (ROOT / path).exists()


def test_every_class_that_uses_the_run_of_the_whole_suite_is_named():
    for path in (ROOT / "tests/notebooks").glob("test_*.py"):
        _, *classes = re.split(r"^class ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        names = [text.partition(":")[0] for text in classes if USES_THE_SUITE.search(text)]
        assert [name for name in names if f"tests/notebooks/{path.name}::{name}" not in SCOPES] == []
