"""`xpulab align` on what is no log: it ends soon, with one line, whatever is read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

HEADER = '{"format": "xpulab.align/1", "environment": {}}\n'
LOG = HEADER + '{"step": 1, "loss": 4.25}\n{"step": 2, "loss": 4.125}\n'
WRITER = "cat good.jsonl > fifo & xpulab align fifo good.jsonl"
DEEP = "".join('{"a": ' for _ in range(10**5))


@pytest.fixture
def good(tmp_path):
    (tmp_path / "good.jsonl").write_text(LOG)
    return "good.jsonl"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEADER + f'{{"step": 1, "loss": {"7" * 4000}}}\n', 2),
        (HEADER + f'{{"step": 1, "loss": 1, "learning_rate": {"7" * 5000}}}\n', 2),
        (HEADER.replace("{}", DEEP), 1),
        (HEADER.replace("{}", '{"a": "' + "x" * 2**21 + '"}') + '{"step": 1, "loss": 1}\n', 1),
    ],
    ids=["4,000 digits", "5,000 digits", "nested too deeply", "a line of 2 MiB"],
)
def test_a_line_that_takes_too_much_is_named(xpulab, good, tmp_path, text, line):
    (tmp_path / "bad.jsonl").write_text(text)
    for arguments in (("bad.jsonl", good), (good, "bad.jsonl"), (good, good, "--noise", "bad.jsonl")):
        code, shown = xpulab("align", *arguments)
        assert code == 2 and f"xpulab: bad.jsonl line {line}: " in shown and "give the log" in shown, shown
        assert "no verdict" not in shown and len(shown) < 1000


def test_a_device_that_never_ends_is_named(xpulab, good):
    code, shown = xpulab("align", "/dev/zero", good)
    assert code == 2 and shown.startswith("xpulab: /dev/zero line 1: not a text; give the log"), shown


def test_a_pipe_into_which_no_process_writes_is_empty(xpulab, good, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    code, shown = xpulab("align", good, "fifo")
    assert code == 2 and shown.startswith("xpulab: fifo line 1: empty; give the log"), shown


@pytest.mark.parametrize("line", ["xpulab align <(cat good.jsonl) <(sleep 1; cat good.jsonl)", WRITER])
def test_logs_of_running_processes_are_read_to_their_ends(good, tmp_path, line):
    os.mkfifo(tmp_path / "fifo")
    line = line.replace("xpulab", f"{sys.executable} -m xpulab")
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "the same to the bit" in done.stdout) == (0, True), done.stderr
