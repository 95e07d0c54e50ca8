"""A process dies where it was told to, and leaves what a crash there leaves."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.fixture
def run(tmp_path):
    """A function that runs Python in a process of its own, with `folder` and `crash` in reach; its exit status."""

    def run(code):
        head = f"import json, os, pathlib\nfrom xpulab.notebook import crash\nfolder = pathlib.Path({str(tmp_path)!r})\n"
        done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60)
        assert not done.stderr, done.stderr
        run.printed = done.stdout.strip()
        return done.returncode

    return run


TWO_FILES = """
(folder / "a").write_bytes(bytes(100_000))
with open(folder / "b", "w") as file:
    file.write("x" * 50)
print(written.total)
"""


def test_all_bytes_below_the_folder_are_counted_and_no_others(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "c"
    assert run(f"written = crash.count_bytes(folder)\nopen({str(elsewhere)!r}, 'w').write('y')\n" + TWO_FILES) == 0
    assert run.printed == "100050"


def test_it_dies_by_sigkill_in_the_middle_of_a_file(run, tmp_path):
    assert run("written = crash.kill_at_byte(folder, 60_000)\n" + TWO_FILES) == -signal.SIGKILL
    assert (tmp_path / "a").stat().st_size == 60_000
    assert not (tmp_path / "b").exists()


def test_what_is_in_a_buffer_is_lost(run, tmp_path):
    code = "crash.kill_at_byte(folder, 10)\nfile = open(folder / 'a', 'w')\nfile.write('x' * 10)\nprint('alive', flush=True)\n"
    assert run(code + "file.close()") == -signal.SIGKILL
    assert run.printed == "alive"
    assert (tmp_path / "a").read_text() == "x" * 10


def test_it_does_not_die_before_its_byte(run):
    assert run("written = crash.kill_at_byte(folder, 100_051)\n" + TWO_FILES) == 0


def test_a_file_that_is_only_read_is_left_alone(run, tmp_path):
    (tmp_path / "given").write_text("as it was")
    assert run("crash.kill_at_byte(folder, 1)\nprint(open(folder / 'given').read())") == 0
    assert run.printed == "as it was"


@pytest.mark.parametrize(("when", "there"), [("before", "old"), ("after", "new")])
def test_it_dies_before_or_after_a_rename(run, tmp_path, when, there):
    (tmp_path / "name").write_text("old")
    (tmp_path / "partial").write_text("new")
    code = f"crash.kill_{when}('replace')\nos.replace(folder / 'partial', folder / 'name')\nprint('alive')"
    assert run(code) == -signal.SIGKILL
    assert run.printed == ""
    assert (tmp_path / "name").read_text() == there
