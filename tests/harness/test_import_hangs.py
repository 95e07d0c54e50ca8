"""An import of Paddle that hangs: the run ends at its limit with a message and reports, and leaves no process."""

from __future__ import annotations

import json

import psutil
import pytest
from typer.testing import CliRunner

from tests.conftest import make, save
from xpulab import cli
from xpulab.harness import fork_server

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run for which `import paddle` does not end: result of the command, its reports, the processes that it left."""
    folder = tmp_path_factory.mktemp("hangs")
    (folder / "first" / "paddle").mkdir(parents=True)
    # A file system that does not answer cannot be had in a test.
    (folder / "first" / "paddle" / "__init__.py").write_text("import threading\nthreading.Event().wait()\n")
    save(make('check.equal("shown.good", 2, 2, control=3)', capabilities=["shown"]), folder / "shown.ipynb")
    before = psutil.Process().children(recursive=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(folder / "first"))
        patched.setattr(fork_server, "IMPORT_SECONDS", 6.0)
        arguments = ["run", str(folder / "shown.ipynb"), "--device", "cpu", "--out", str(folder / "out")]
        done = CliRunner().invoke(cli.app, arguments)
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    return done, folder / "out", left


def test_it_is_red_and_says_so_in_every_report_and_leaves_no_process(ended):
    done, out, left = ended
    assert (done.exit_code, type(done.exception), "Traceback" in done.output, left) == (1, SystemExit, False, [])
    result = json.loads((out / "result.json").read_text())
    [notebook] = result["notebooks"]
    assert (result["outcome"], [check["outcome"] for check in notebook["checks"]]) == ("failed", ["missing"])
    assert "did not end within 6 s; `xpulab doctor`" in notebook["reason"] and notebook["reason"] in done.output
    assert (out / "junit.xml").exists() and "Paddle and PaddleNLP did not end" in (out / "index.html").read_text()
