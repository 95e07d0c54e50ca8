"""A process is killed at the chosen byte or call, and leaves the files that a crash there leaves."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from xpulab.chapters.checkpoint_damage import crash

pytestmark = pytest.mark.integration


def exit_code(function):
    """Call the function in its own process; the exit code of that process."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join(60)
    return process.exitcode


@pytest.fixture
def folder(tmp_path):
    """The folder in which bytes are counted."""
    path = tmp_path / "counted"
    path.mkdir()
    return path


@pytest.fixture
def elsewhere(tmp_path):
    """A folder in which no bytes are counted."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    return path


def write_two_files(folder):
    """100,000 bytes as "a", then 50 as "b"."""
    (folder / "a").write_bytes(bytes(100_000))
    with open(folder / "b", "w") as file:
        file.write("x" * 50)


def test_the_process_is_killed_in_the_middle_of_a_file(folder):
    def write():
        crash.kill_at_byte(folder, 60_000)
        write_two_files(folder)

    assert exit_code(write) == -signal.SIGKILL
    assert (folder / "a").stat().st_size == 60_000
    assert not (folder / "b").exists()


def test_bytes_in_a_buffer_are_lost_when_the_process_is_killed(folder):
    def write():
        crash.kill_at_byte(folder, 20)
        file = open(folder / "a", "w")  # noqa: SIM115
        file.write("x" * 10)
        (folder / "b").write_bytes(bytes(20))

    assert exit_code(write) == -signal.SIGKILL
    assert ((folder / "a").stat().st_size, (folder / "b").stat().st_size) == (0, 20)


@pytest.mark.parametrize(("kill", "content"), [(crash.kill_before, "old"), (crash.kill_after, "new")], ids=["before", "after"])
def test_the_process_is_killed_before_or_after_a_rename(folder, elsewhere, kill, content):
    (folder / "name").write_text("old")
    (folder / "partial").write_text("new")

    def rename():
        kill("replace")
        os.replace(folder / "partial", folder / "name")
        (elsewhere / "alive").touch()

    assert exit_code(rename) == -signal.SIGKILL
    assert not (elsewhere / "alive").exists()
    assert (folder / "name").read_text() == content
