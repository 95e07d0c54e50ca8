"""How tests are distributed over processes: what must run in one worker exists, and is run by one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import ONE_WORKER
from xpulab.files import ROOT

SCOPES = [scope for scopes in ONE_WORKER.values() for scope in scopes]
USES_THE_SUITE = re.compile(r"def test_\w+\(self, suite\b")
MODULE = "class TestOne:\n    def test_a(self): ...\n    def test_b(self): ...\n    def test_c(self): ...\n"


@pytest.mark.parametrize("scope", SCOPES)
def test_what_one_worker_runs_exists(scope):
    path, _, name = scope.partition("::")
    assert f"class {name}:" in (ROOT / path).read_text(encoding="utf-8") if name else (ROOT / path).exists()


def test_every_class_that_uses_the_run_of_the_whole_suite_is_named():
    for path in (ROOT / "tests/notebooks").glob("test_*.py"):
        _, *classes = re.split(r"^class ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        names = [text.partition(":")[0] for text in classes if USES_THE_SUITE.search(text)]
        assert [name for name in names if f"tests/notebooks/{path.name}::{name}" not in SCOPES] == []


@pytest.mark.parametrize(("together", "workers"), [(True, 1), (False, 2)])
def test_classes_that_are_named_are_run_by_one_worker(tmp_path, together, workers):
    scopes = tuple(f"{path}::TestOne" for path in ("test_x.py", "test_y.py")) if together else ()
    lines = ["from tests import conftest", f"conftest.ONE_WORKER = {{'together': {scopes!r}}}", "from tests.conftest import *"]
    (tmp_path / "conftest.py").write_text("\n".join(lines))
    for name in ("test_x.py", "test_y.py"):
        (tmp_path / name).write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", "-v"]
    command += ["-n", "2", "--dist", "loadscope"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(set(re.findall(r"\[(gw\d)\].*PASSED", done.stdout))) == workers
