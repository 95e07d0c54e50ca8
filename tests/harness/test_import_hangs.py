"""An import of Paddle that hangs: the run ends at its limit with a message and reports, and leaves no process."""

from __future__ import annotations

import json
import re

import psutil
import pytest
from typer.testing import CliRunner

from tests.conftest import make, save
from xpulab import cli
from xpulab.harness import run as harness

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
        patched.setattr(harness, "IMPORT_SECONDS", 6.0)
        arguments = ["run", str(folder / "shown.ipynb"), "--device", "cpu", "--out", str(folder / "out")]
        done = CliRunner().invoke(cli.app, arguments)
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    return done, folder / "out", left


def test_it_is_red_and_not_a_traceback(ended):
    done = ended[0]
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert "Traceback" not in done.output
    assert "RED: 0 of 1 notebooks passed" in done.output


def test_the_message_says_where_it_hangs_and_what_to_do(ended):
    reason = json.loads((ended[1] / "result.json").read_text())["notebooks"][0]["reason"]
    assert re.fullmatch(
        r'importing Paddle and PaddleNLP did not end within 6 s, in File ".*/first/paddle/__init__.py", line 2 in <module>; '
        "`xpulab doctor` shows cause and remedy",
        reason,
    )
    assert reason in ended[0].output


def test_every_report_is_written(ended):
    result = json.loads((ended[1] / "result.json").read_text())
    assert (result["outcome"], [check["outcome"] for check in result["notebooks"][0]["checks"]]) == ("failed", ["missing"])
    assert (ended[1] / "junit.xml").exists()
    assert "importing Paddle and PaddleNLP did not end" in (ended[1] / "index.html").read_text()


def test_no_process_is_left(ended):
    assert ended[2] == []
